"""The results of a synchronous run depend neither on the cluster nor on the number of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from harness import QUICK, WORLDS, experiment_of, fingerprint, train_in

from evorl.cluster.processes import Processes

MEMBERS = 8
SMALL = (*QUICK[:4], "rl.slots=2", "rl.horizon=8", "rl.net.hidden=[8]", f"rl.members={MEMBERS}", "budget.steps=400")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("rl=ppo", "rl.minibatch=64", "rl.passes=2", *WORLDS["pong"], "rl.net.lstm=4"),
        pytest.param(("rl=a2c", *WORLDS["pong"]), marks=pytest.mark.fault),
        pytest.param(("rl=reinforce", *WORLDS["pendulum"]), marks=pytest.mark.fault),
        ("rl=td3", "mdp=pendulum", "rl.batch=16", "rl.warm_up=100", "rl.samples_per_step=4"),
        ("rl=vtrace", *WORLDS["pong"], "rl.asynchronous=false", "rl.fill_in=16", "rl.net.lstm=4"),
        ("rl=impact", "mdp=cartpole", "rl.asynchronous=false", "rl.batch=8", "rl.replay.circular.batches=2"),
        (
            *("rl=dqn", "mdp=cartpole", "rl.batch=16", "rl.warm_up=100", "rl.samples_per_step=4"),
            *("rl.noisy=true", "rl.sampling=prioritized", "rl.epsilon=0.2", "rl.epsilon_spread=7"),
        ),
        (
            "rl=r2d2",
            "mdp=cartpole",
            "rl.batch=4",
            "rl.samples_per_step=4",
            "rl.warm_up=200",
            "rl.length=4",
            "rl.burn_in=2",
            "rl.net.lstm=4",
        ),
    ],
    ids=["ppo", "a2c", "reinforce", "td3", "vtrace", "impact", "dqn", "r2d2"],
)
def test_the_number_of_workers_changes_no_bit(words: tuple[str, ...], tmp_path: Path) -> None:
    experiment = experiment_of(*SMALL, *words)
    train_in(tmp_path / "local", experiment)
    alone = fingerprint(tmp_path / "local")
    for workers in (1, 2, 3, MEMBERS):
        there = tmp_path / f"{workers} workers"
        train_in(there, replace(experiment, cluster=Processes(workers=workers)))
        assert fingerprint(there) == alone, workers
