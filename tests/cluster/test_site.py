"""Where a run computes: what a cluster decides for it, and what this machine does as ever."""

import pytest

from longdoc.cluster.nodes import Node
from longdoc.cluster.preflight import NodeFacts
from longdoc.config import RunConfig, read_job_file
from longdoc.errors import CapacityError, StartError
from longdoc.runs import site
from longdoc.runs.setup import capacity_of, ingest_spec
from longdoc.runs.site import Cluster, ThisMachine, room_of

GIB = 1 << 30
FACTS = NodeFacts(num_cores=8, free_bytes=16 * GIB, gpu_bytes=70 * GIB)


def cluster(*resources):
    nodes = [
        Node(node_id=str(number), host=f"10.0.0.{number}", resources=has, is_driver=number == 0)
        for number, has in enumerate(resources)
    ]
    return Cluster(address="10.0.0.0:6379", nodes=nodes, facts={node.node_id: FACTS for node in nodes})


def config(**options):
    return RunConfig(output="out", **({"address": "10.0.0.0:6379"} | options))


@pytest.fixture
def free(monkeypatch):
    """What the cluster says is free, one answer after the other."""

    def install(*answers):
        left = list(answers)
        monkeypatch.setattr(site, "free_resources", lambda: left.pop(0) if len(left) > 1 else left[0])

    return install


def test_auto_is_cuda_where_a_node_of_the_cluster_has_a_gpu():
    assert cluster({"CPU": 2}, {"CPU": 8, "GPU": 1}).settled(config()).resolved_device == "cuda"
    assert cluster({"CPU": 2}).settled(config()).resolved_device == "cpu"
    assert cluster({"GPU": 4}).settled(config(device="cpu")).resolved_device == "cpu"


def test_cuda_is_a_matter_of_the_cluster_and_not_of_this_machine():
    asked = config(device="cuda", kernel="flash-attn")
    assert cluster({"GPU": 1}).settled(asked) == asked
    with pytest.raises(StartError, match=r"no node of the cluster at 10\.0\.0\.0:6379 has a GPU; use --device cpu\."):
        cluster({"CPU": 2}).settled(asked)
    with pytest.raises(StartError, match="--kernel flash-attn runs on CUDA only"):
        cluster({"CPU": 2}).settled(config(kernel="flash-attn"))


def test_a_ring_on_a_cluster_reads_without_reserving_and_is_sized_by_the_nodes(free, tiny_model):
    free({"0": {"CPU": 2.0}, "1": {"CPU": 2.0}})
    ring = cluster({"CPU": 2.0}, {"CPU": 2.0}).ring(config(device="cpu", ring_size=2))
    assert (ring.num_ranks, ring.threads_per_rank, ring.bundle) == (2, 1, {"CPU": 1.0})
    assert capacity_of(ring)(2) == 8 * GIB
    ingest = ingest_spec(config(device="cpu", outputs=("embeddings",)), tiny_model, ring)
    assert (ingest.num_cpus, ingest.capacity(2)) == (0.0, 8 * GIB)


def test_cores_that_another_run_lets_go_are_waited_for_a_moment(free, monkeypatch):
    free({"0": {"CPU": 0.0}}, {"0": {"CPU": 0.0}}, {"0": {"CPU": 2.0}})
    assert cluster({"CPU": 2.0}).ring(config(device="cpu")).num_ranks == 2
    free({"0": {"CPU": 0.0}})
    monkeypatch.setattr(site, "_SETTLE_SECONDS", 0.3)
    with pytest.raises(CapacityError, match=r"of the cluster's 2 only 0 are free now"):
        cluster({"CPU": 2.0}).ring(config(device="cpu"))


def test_a_node_counts_no_more_cores_than_its_machine_has():
    node = Node(node_id="0", host="h", resources={"CPU": 64.0, "GPU": 2.0})
    room = room_of(node, {"CPU": 60.0, "GPU": 1.5}, FACTS)
    assert (room.num_cores, room.total_cores, room.num_gpus, room.total_gpus) == (8.0, 8.0, 1, 2)
    assert room_of(node, {}, FACTS).num_cores == 0


def test_no_rates_are_known_of_a_cluster(tiny_model):
    assert cluster({"CPU": 2.0}).rates(config(), tiny_model, None) is None


def test_a_job_file_names_the_cluster_and_documents_are_the_same_wherever_they_are_computed(tmp_path):
    (tmp_path / "job.toml").write_text('address = "auto"\n')
    assert read_job_file(tmp_path / "job.toml") == {"address": "auto"}
    told = {"model_digest": "m", "tokenizer_sha256": "t", "convention": "c"}
    here = RunConfig(output="out", device="cpu", outputs=("embeddings",))
    there = RunConfig(output="out", device="cpu", outputs=("embeddings",), address="10.0.0.1:6379")
    assert here.fingerprint(**told) == there.fingerprint(**told)
    assert there.as_json()["address"] == "10.0.0.1:6379"


def test_this_machine_needs_no_cluster(monkeypatch):
    monkeypatch.setattr(site, "joined", lambda _: pytest.fail("a cluster was joined"))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with site.site_of(RunConfig(output="out", device="cpu"), None) as here:
        assert isinstance(here, ThisMachine)
        assert here.models(RunConfig(output="out", device="cpu"), None) is None
