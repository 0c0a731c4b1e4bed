"""What a run asks of Ray for its workers: cores, GPUs and machines, of which Ray believes that there are two."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import cluster_toys as toys
import pytest
from harness import for_a_ray_in_here

from evorl.cluster.ray import Ray
from evorl.util.errors import BadRequest

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a Ray with two nodes, each with 4 cores and 2 GPUs, as far as Ray knows."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 4, "num_gpus": 2, "object_store_memory": 80 << 20}
    with pytest.MonkeyPatch.context() as patch:
        for_a_ray_in_here(patch)
        patch.delenv("CUDA_VISIBLE_DEVICES")  # empty in tests; Ray would count no GPU
        cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False}, connect=True)
        try:
            cluster.add_node(**node)
            yield str(cluster.address)
        finally:
            import ray

            ray.shutdown()
            cluster.shutdown()


@pytest.fixture(autouse=True)
def free(address: str) -> None:
    """Wait until Ray has taken back what the test before had."""
    import ray

    ends, resources = time.monotonic() + 60, cast(Any, ray.available_resources)
    while resources().get("CPU") != 8.0:
        assert time.monotonic() < ends, resources()
        time.sleep(0.05)


def worker_actors() -> list[dict[str, Any]]:
    """The actors that live now, as Ray has them: on which node, with which resources."""
    from ray._private.state import actors

    return [one for one in actors().values() if one["State"] == "ALIVE"]


@pytest.mark.parametrize(("placement", "shares"), [("spread", [2, 2]), ("pack", [4])])
def test_workers_are_spread_or_packed(address: str, placement: Any, shares: list[int]) -> None:
    group = Ray(address=address, workers=4, placement=placement).spawn(toys.Counter, 4)
    try:
        nodes = Counter(one["Address"]["NodeID"] for one in worker_actors())
        assert sorted(nodes.values()) == shares
        assert [answer[0] for answer in group.all("add", 1)] == [0, 1, 2, 3]
    finally:
        group.close()


class Seeing:
    def __init__(self, index: int) -> None:
        self.index = index

    def gpus(self) -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]


def test_cores_and_gpus_are_set_aside(address: str) -> None:
    from ray.util import placement_group_table

    group = Ray(address=address, workers=2, cpus=1.5, gpus=1.0, placement="pack").spawn(Seeing, 2)
    try:
        (asked,) = [one for one in placement_group_table().values() if one["state"] == "CREATED"]
        assert (asked["strategy"], [*asked["bundles"].values()]) == ("PACK", [{"CPU": 1.5, "GPU": 1.0}] * 2)
        assert sorted(group.all("gpus")) == ["0", "1"]  # each its own
    finally:
        group.close()


def test_more_gpus_than_there_are_is_refused(address: str) -> None:
    words = r"no room for 3 workers of 1 CPUs and 2 GPUs within 1 s; the cluster has 8 CPUs and 4 GPUs"
    with pytest.raises(BadRequest, match=words) as refused:
        Ray(address=address, workers=3, gpus=2.0, deadline_s=1.0).spawn(toys.Counter, 3)
    assert refused.value.key == "cluster.gpus"
