"""A Ray for the tests of this folder, started by the first that needs it and kept for the others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import relatives, title


@pytest.fixture(scope="session")
def kept_ray() -> Iterator[tuple[str, Path]]:
    """Its address, and the folder that all its processes have for temporary files."""
    from evorl.cluster.ray.own_ray import STORE, RayOwner

    with tempfile.TemporaryDirectory(prefix="evorl-test-", dir="/tmp") as name:
        place = Path(name)
        (place / "driver").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", name)
            owner = RayOwner({"num_cpus": 2, "object_store_memory": STORE}, str(place / "driver"))
        try:
            yield owner.address, place
        finally:
            owner.close()


@pytest.fixture(scope="module")
def address(kept_ray: tuple[str, Path]) -> Iterator[str]:
    """Of the Ray that this process is part of, as long as the tests of one file run."""
    import ray

    from evorl.cluster.ray.own_ray import on_loopback

    with on_loopback():
        ray.init(kept_ray[0], log_to_driver=False, logging_level="ERROR")
    yield kept_ray[0]
    ray.shutdown()


@pytest.fixture(scope="module")
def worker_actors(kept_ray: tuple[str, Path]) -> Callable[[], list[int]]:
    """The processes of Ray that carry workers, and the workers, at the moment."""

    def present() -> list[int]:
        return [pid for pid in relatives(kept_ray[1]) if b"ray::WorkerActor" in title(pid)]

    return present
