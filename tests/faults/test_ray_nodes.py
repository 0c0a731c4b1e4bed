"""What Ray itself may lose: a node of the cluster that a run spans, its head, the processes of a run's own Ray."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import QUICK, WORLDS, experiment_of, fingerprint, for_a_ray_in_here, rows, start, title, train_in
from ray_machines import Node, naming, surroundings

from evorl.cluster.ray import Ray
from evorl.record import checkpoint

pytestmark = pytest.mark.fault


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    for_a_ray_in_here(monkeypatch)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield cluster
    finally:
        cluster.shutdown()


def test_a_run_outlives_a_node(nodes: Any, tmp_path: Path) -> None:
    other = nodes.add_node(num_cpus=1)
    words = [*QUICK, *WORLDS["pong"], "rl.members=3", "budget.steps=60000"]
    train_in(tmp_path / "alone", experiment_of(*words))
    removed: list[int] = []

    def remove() -> None:
        metrics = tmp_path / "spread" / "metrics.jsonl"
        while not metrics.exists() or len(rows(tmp_path / "spread")) < 5:
            time.sleep(0.01)
        nodes.remove_node(other, allow_graceful=False)
        removed.append(len(rows(tmp_path / "spread")))

    thread = threading.Thread(target=remove, daemon=True)
    thread.start()
    train_in(tmp_path / "spread", experiment_of(*words, "cluster=ray", f"cluster.address='{nodes.address}'"))
    thread.join()
    found = rows(tmp_path / "spread")
    assert removed[0] < len(found)  # while it ran
    assert max(row.get("cluster/replaced", 0) for row in found) >= 1
    assert fingerprint(tmp_path / "spread") == fingerprint(tmp_path / "alone")


class Sum:
    def __init__(self, index: int) -> None:
        self.sum = index

    def add(self, x: int) -> int:
        self.sum += x
        return self.sum

    def state_dict(self) -> dict[str, int]:
        return {"sum": self.sum}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.sum = state["sum"]


def test_a_worker_is_replaced_where_its_group_has_all_gpus(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # Ray refuses more GPUs than it names
    nodes.add_node(num_cpus=1, num_gpus=1)
    group: Any = Ray(workers=1, address=nodes.address, gpus=1.0).spawn(Sum, 1)
    try:
        assert group.all("add", 1) == [1]
        worker = psutil.Process(group.pool.handles[0].process.pid)
        worker.parent().kill()  # the actor, and the worker with it
        worker.wait(60)
        call, ends = group.any("add", 0), time.monotonic() + 60
        while not call.done():
            assert time.monotonic() < ends, "no actor has come for it"
        assert call.result() == 1 and group.pool.replaced == 1
    finally:
        group.close()


VICTIMS = ("raylet", "gcs_server", "owner")


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_group_outlives_its_own_ray(victim: str) -> None:
    group: Any = Ray(workers=2).spawn(Sum, 3)
    try:
        assert group.all("add", 1) == [1, 2, 3]
        owner = group.pool.launcher._session.owner._process.pid
        names = {called(pid): pid for child in children(owner) for pid in children(child)} | {"owner": owner}
        os.kill(names[victim], signal.SIGKILL)
        for number in range(2, 200):
            assert group.all("add", 1) == [number, number + 1, number + 2]
            if group.pool.replaced:
                break
            time.sleep(0.05)
        assert group.pool.replaced >= 2
    finally:
        group.close()


ORPHAN = """
import os, signal, sys, time
from test_ray_nodes import test_a_group_outlives_its_own_ray
parent = os.getpid()
if os.fork():
    os._exit(0)
signal.alarm(300)  # nobody else would end it
while os.getppid() == parent:
    time.sleep(0.01)
test_a_group_outlives_its_own_ray(sys.argv[1])
print("has outlived it")
"""


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_driver_without_a_parent_outlives_its_own_ray(victim: str) -> None:
    """As after ``nohup``. Ray itself would end such a driver without a word."""
    words = [sys.executable, "-c", ORPHAN, victim]
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    environment.pop("RAY_RAYLET_PID", None)  # the driver sets it itself; here it names this process
    done = subprocess.run(words, env=environment, capture_output=True, text=True)  # until the driver closes its output
    assert done.stdout == "has outlived it\n", done.stderr


@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_run_whose_cluster_ends_ends_with_the_cause(victim: str, tmp_path: Path) -> None:
    """Ray would end the driver itself, a minute later and without a word of ours."""
    words = [*QUICK, *WORLDS["pong"], "rl.members=3", "budget.steps=5000000", "cluster=ray", "cluster.cpus=0.5"]
    directory = tmp_path / "run"
    with surroundings(tmp_path) as environment, ExitStack() as processes:
        head = Node(environment, "ray_head", "--port=0")
        processes.callback(head.end)
        address = re.findall(r"--address='([\d.:]+)'", head.text())[0]
        run = start(
            *words, f"cluster.address={address}", f"hydra.run.dir={directory}",
            cwd=tmp_path, **environment, RAY_AUTH_MODE="token",
        )  # fmt: skip
        processes.enter_context(run)
        while not (directory / "metrics.jsonl").exists() or len(rows(directory)) < 5:
            assert run.poll() is None, (tmp_path / "err").read_text()
            time.sleep(0.01)
        of_ray = [pid for pid in naming(environment["EVORL_RAY_DIR"]) if called(pid) == victim]
        os.kill(*of_ray, signal.SIGKILL)
        assert run.wait(120) == 1
    said = next(line for line in (tmp_path / "err").read_text().splitlines() if line.startswith("evorl: "))
    assert f"the Ray at {address} is gone" in said
    assert "is gone" in json.loads((directory / "failure.json").read_bytes())["reason"]
    assert checkpoint.newest(directory) is not None


def test_a_driver_that_is_killed_leaves_nothing_on_a_cluster_it_has_joined_and_goes_on(tmp_path: Path) -> None:
    words = (*QUICK, *WORLDS["pong"], "rl.members=3", "budget.steps=20000")
    train_in(tmp_path / "alone", experiment_of(*words))
    directory = tmp_path / "run"
    with surroundings(tmp_path) as environment, ExitStack() as processes:
        head = Node(environment, "ray_head", "--port=0")
        processes.callback(head.end)
        address = re.findall(r"--address='([\d.:]+)'", head.text())[0]
        (raylet,) = [pid for pid in naming(environment["EVORL_RAY_DIR"]) if called(pid) == "raylet"]
        joined = ("cluster=ray", "cluster.cpus=0.25", f"cluster.address={address}")

        def worker_actors() -> list[int]:
            return [pid for pid in descendants(raylet) if b"ray::WorkerActor" in title(pid)]

        def begun(*words: str) -> subprocess.Popen[str]:
            return start(*words, cwd=tmp_path, **environment, RAY_AUTH_MODE="token")

        with begun(*words, *joined, f"hydra.run.dir={directory}") as run:
            while not (directory / "metrics.jsonl").exists() or len(rows(directory)) < 5:
                assert run.poll() is None, (tmp_path / "err").read_text()
                time.sleep(0.01)
            assert len(worker_actors()) >= 2
            run.kill()
        ends = time.monotonic() + 5
        while worker_actors():
            assert time.monotonic() < ends, [title(pid) for pid in worker_actors()]
            time.sleep(0.01)
        with begun(f"resume={directory}", *joined) as run:
            assert run.wait(120) == 0, (tmp_path / "err").read_text()
    assert fingerprint(directory) == fingerprint(tmp_path / "alone")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    try:
        return [one for child in children(pid) for one in (child, *descendants(child))]
    except OSError:  # it has ended
        return []


def called(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
