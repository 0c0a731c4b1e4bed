"""A run over two machines: each its own network and its own processes, joined by a cable, one of them lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, WORLDS, experiment_of, fingerprint, rows, train_in
from ray_machines import Networks, Node, Unpermitted, surroundings

pytestmark = pytest.mark.fault

LONGEST_S = 200.0

LISTEN = """
import socket, sys
seen = set()
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
line.bind((sys.argv[1], 0))
while True:
    packet = line.recv(1 << 16)
    for name in ("NULL", "PLAIN", "CURVE"):
        if name.encode().ljust(20, b"\\0") in packet and name not in seen:
            seen.add(name)
            print(name, flush=True)
"""  # the mechanism that a ZeroMQ greeting names (its RFC 23)


@pytest.fixture
def networks() -> Iterator[Networks]:
    """Two machines with addresses of their own, where root allows that: an unprivileged process can make no bridge."""
    try:
        found = Networks()
    except Unpermitted as reason:
        pytest.skip(f"no networks of our own here: {reason}")
    try:
        yield found
    finally:
        found.close()


def killed(networks: Networks, node: Node) -> None:
    node.process.kill()  # and with it all that it started


def cut_off(networks: Networks, node: Node) -> None:
    networks.cut()


PONG = (*QUICK, *WORLDS["pong"], "rl.members=3", "budget.steps=24000")
SHARED_CRITIC = (
    *("mdp=pendulum", "mdp.time_limit=50", "record.tensorboard=false", "eval.episodes=2", "eval.every=0"),
    *("rl=td3", "rl.net.hidden=[8]", "rl.batch=16", "rl.warm_up=200", "rl.capacity=500", "ec=cem_rl"),
    *("ec.population=4", "ec.trained=2", "ec.critic_ratio=0.2", "ec.actor_ratio=0.1", "budget.steps=3000"),
)  # the other machine follows the replay


@pytest.mark.parametrize(("words", "lose"), [(PONG, killed), (PONG, cut_off), (SHARED_CRITIC, killed)])
def test_a_run_over_two_machines_outlives_one(
    networks: Networks, words: tuple[str, ...], lose: Callable[[Networks, Node], None], tmp_path: Path
) -> None:
    train_in(tmp_path / "alone", experiment_of(*words))
    here, there = networks.addresses
    with surroundings(tmp_path) as environment, ExitStack() as processes:
        environment["RAY_AUTH_MODE"] = "token"

        def begin(*command: str, **options: Any) -> subprocess.Popen[str]:
            return processes.enter_context(subprocess.Popen([*command], env=environment, text=True, **options))

        head = Node(environment, "ray_head", f"--node-ip-address={here}", where=networks.within(0))
        processes.callback(head.end)
        other = Node(environment, "ray_worker", here, f"--node-ip-address={there}", where=networks.apart(1))
        processes.callback(other.end)
        listener = begin(*networks.within(1), sys.executable, "-c", LISTEN, networks.ends[1], stdout=subprocess.PIPE)
        command = [*networks.within(0), sys.executable, "-m", "evorl.run", *words, "cluster=ray", "cluster.workers=2"]
        directory = tmp_path / "spread"
        run = begin(
            *command, f"cluster.address={here}", f"hydra.run.dir={directory}",
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        processes.callback(networks.close)  # before their ends are waited for
        ends = time.monotonic() + LONGEST_S
        while not (directory / "metrics.jsonl").exists() or len(rows(directory)) < 5:
            assert run.poll() is None and time.monotonic() < ends
            time.sleep(0.01)
        before = len(rows(directory))
        lose(networks, other)
        _, said = run.communicate(timeout=LONGEST_S)
        assert run.returncode == 0, said
        networks.close()
        assert listener.communicate()[0].split() == ["CURVE"]
    assert before < len(rows(directory))  # it was lost while the run went on
    assert max(row.get("cluster/replaced", 0) for row in rows(directory)) >= 1
    assert fingerprint(directory) == fingerprint(tmp_path / "alone")
