"""Asynchronous runs that are disturbed: they finish, count every environment step once and keep to their lag."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_runs import CLUSTER, Run, kill_driver, kill_worker, kill_workers, replaced, stop_worker
from harness import newest, rows

pytestmark = pytest.mark.fault

MOST_LAG = 9
FRAGMENT = 4 * 32  # environment steps
SMALL = ("rl.slots=4", "rl.horizon=32", "rl.net.hidden=[8]", "~tuned", f"rl.max_lag={MOST_LAG}")
QUIET = ("record.tensorboard=false", "eval.every=0", "eval.episodes=2")
WORLD = ("mdp=pong", "mdp.rounds=2", "mdp.round_steps=60", "rl.asynchronous=true")
ON_RAY = ("cluster=ray", "cluster.workers=2", "rl.members=3")
PPO, A3C = ("rl=ppo", "rl.minibatch=128"), ("rl=a3c",)
VTRACE = ("rl=vtrace", "rl.batch=8", "rl.fill_in=16")
APE_X = (
    *("rl=dqn", "rl.sampling=prioritized", "rl.n_step=3", "rl.double=true", "rl.epsilon=0.4", "rl.epsilon_spread=7"),
    *("rl.batch=32", "rl.samples_per_step=2", "rl.warm_up=200", "rl.capacity=5000"),
)
R2D2 = ("rl=r2d2", "rl.net.lstm=4", *APE_X[1:-1], "rl.capacity=5000")
IMPACT = ("rl=impact", "rl.batch=8")


def check_counts(directory: Path) -> None:
    """What was learned from and what was dropped is what the members have played, each fragment once."""
    state, played = newest(directory)["run"], [row for row in rows(directory) if "policy/lag" in row]
    steps, dropped = [row["step"] for row in played], [row["policy/dropped_fragments"] for row in played]
    assert steps == [FRAGMENT * (n + lost) for n, lost in enumerate(dropped, 1)]
    fragments = [member["fragments"] for member in state["actors"].values()]
    assert FRAGMENT * sum(fragments) == state["steps"] == steps[-1] and min(fragments) > 0
    assert max(row["policy/lag_max"] for row in played) <= MOST_LAG


@pytest.mark.parametrize(("cluster", "least"), [(CLUSTER, 10), (ON_RAY, 3)], ids=["processes", "ray"])
@pytest.mark.parametrize(
    "algorithm",
    [PPO, (*PPO, "rl.correction=vtrace"), A3C, VTRACE, IMPACT, APE_X, R2D2],
    ids=["ppo", "ppo with V-trace", "a3c", "vtrace", "impact", "ape-x", "r2d2"],
)
def test_workers_are_killed(
    cluster: tuple[str, ...], least: int, algorithm: tuple[str, ...], run: Callable[..., Run]
) -> None:
    it = run(*WORLD, *algorithm, *SMALL, *QUIET, *cluster, "checkpoint.every=0", "budget.steps=80000")
    draw, hits = random.Random(3), 0
    while it.until_rows(20):
        hits += kill_worker(it, draw)
    it.finish()
    assert hits >= least and replaced(it.directory) > 0
    check_counts(it.directory)


@pytest.mark.parametrize(
    "algorithm", [PPO, A3C, VTRACE, IMPACT, APE_X], ids=["ppo", "a3c", "vtrace", "impact", "ape-x"]
)
def test_workers_are_stopped_and_drivers_killed(algorithm: tuple[str, ...], run: Callable[..., Run]) -> None:
    """Who goes on from a checkpoint plays fragments again that were on their way."""
    ends = ("cluster.deadline_s=1.5", "checkpoint.every=10000", "budget.steps=600000")
    it, draw = run(*WORLD, *algorithm, *SMALL, *QUIET, *CLUSTER, *ends), random.Random(3)
    for act in (stop_worker, kill_workers, stop_worker):
        assert it.until_rows(draw.randrange(200, 400)) and act(it, draw) > 0
        assert it.until_rows(draw.randrange(200, 400))
        assert (it.directory / "checkpoints").exists()
        kill_driver(it)
        it.driver.wait()
        it.check_gone()
        it.go_on()
    assert it.until_rows(100) and stop_worker(it, draw) > 0
    it.finish()
    assert replaced(it.directory) >= 1
    check_counts(it.directory)
