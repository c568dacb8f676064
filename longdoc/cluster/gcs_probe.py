"""Asks Ray's GCS who it is and prints the answer as JSON: `python -m longdoc.cluster.gcs_probe HOST:PORT`.

A process of its own, because Ray's client cannot be told how long to wait: it hangs for 40 s where something else
answers, and later may end the process that it runs in. Whoever starts this one ends it in time.
"""

import json
import logging
import sys
from typing import Any


def describe(address: str) -> dict[str, Any]:
    """What the GCS tells: versions, whether one of its nodes runs on this machine; or why it tells nothing.

    Keys: `ray`, `python`, `is_here`; or `refused` where a token is missing or wrong, or `problem`.
    """
    import ray

    try:
        # None of these is public: another Ray may have them elsewhere, and that is told then.
        from ray._common.usage.usage_lib import get_cluster_metadata
        from ray._private.services import find_node_ids
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled, without stubs

        client = GcsClient(address=address)
        metadata = get_cluster_metadata(client)
        alive = {node_id.hex() for node_id, node in client.get_all_node_info(timeout=5).items() if node.state == 0}
    except ray.exceptions.AuthenticationError as error:
        return {"refused": error.message}
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    return {
        "ray": metadata["ray_version"],
        "python": metadata["python_version"],
        "is_here": bool(alive & set(find_node_ids())),
    }


if __name__ == "__main__":
    logging.disable()
    sys.stdout.write(json.dumps(describe(sys.argv[1])))
