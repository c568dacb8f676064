"""The nodes of a cluster, asked all at the same time: one small task on each, and from each an answer or a reason.

Owns how tasks are pinned and how long they are waited for. Tasks reserve nothing, so a node that is full answers too;
one that does not answer in time is named.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longdoc.cluster.calls import result
from longdoc.errors import LongdocError, RingError, StartError

#: How long a node may take to start a process and answer, in seconds.
ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is alive, and what Ray counts on it. `is_driver` is the one this process runs on."""

    node_id: str
    host: str
    resources: Mapping[str, float]
    is_driver: bool = False

    @property
    def name(self) -> str:
        """The node as messages call it."""
        return f"node {self.host}" + (" (this one)" if self.is_driver else "")


def alive_nodes() -> list[Node]:
    """The cluster's nodes that are alive, the driver's first, then by address."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    nodes = [
        Node(
            node_id=told["NodeID"],
            host=told["NodeManagerAddress"],
            resources=told["Resources"],
            is_driver=told["NodeID"] == here,
        )
        for told in ray.nodes()
        if told["Alive"]
    ]
    return sorted(nodes, key=lambda node: (not node.is_driver, node.host, node.node_id))


def free_resources() -> dict[str, dict[str, float]]:
    """What is free on each node, by node id. Ray's public calls tell only the sum.

    Raises `StartError` where another Ray has it elsewhere.
    """
    import ray

    try:
        from ray._private.state import available_resources_per_node
    except ImportError:
        cause = f"Ray {ray.__version__} does not tell what is free on each node of a cluster"
        raise StartError(f"{cause}. Use the version that constraints.txt pins.") from None

    free: dict[str, dict[str, float]] = available_resources_per_node()
    return free


def pinned(node_id: str) -> Any:
    """The scheduling strategy for one node and no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def ask(
    nodes: Sequence[Node],
    function: Callable[..., Any],
    arguments: Callable[[Node], tuple[Any, ...]],
    *,
    doing: str,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, Any]:
    """What `function` returns on each node, by node id; a `LongdocError` where it failed there.

    A node that is lost meanwhile is left out: the cluster is smaller then, and may still do. `doing` says what the
    nodes do, for messages. Raises `StartError` naming those that are not done within `seconds`.
    """
    import ray

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    pending = {task.options(scheduling_strategy=pinned(node.node_id)).remote(*arguments(node)): node for node in nodes}
    ready, late = ray.wait(list(pending), num_returns=len(pending), timeout=seconds)
    for reference in late:
        ray.cancel(reference, force=True)
    if late:
        names = ", ".join(pending[reference].host for reference in late)
        raise StartError(
            f"node {names}, {doing}: no answer within {seconds:.0f} s. Look at it with `ray status`, and run again."
        )
    told = {pending[reference].node_id: _outcome(reference, pending[reference], doing) for reference in ready}
    if any(isinstance(outcome, RingError) for outcome in told.values()):
        left = {node.node_id for node in alive_nodes()}
        told = {node_id: outcome for node_id, outcome in told.items() if node_id in left}
    return told


def _outcome(reference: Any, node: Node, doing: str) -> Any:
    try:
        return result(reference, f"{node.name}, {doing}")
    except LongdocError as error:
        return error
