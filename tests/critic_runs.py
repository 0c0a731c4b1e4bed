"""Small evolutions with a shared critic that several test modules run, and what two of them compare."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evolution_runs import journal
from harness import fingerprint, go

from evorl.population.critic_jobs import CriticSteps, JobWorker, Lifetime

QUICK = (
    *("mdp=pendulum", "mdp.time_limit=50", "record.tensorboard=false", "eval.episodes=2", "eval.every=0"),
    *("rl.net.hidden=[8]", "rl.batch=16", "rl.warm_up=200", "rl.capacity=1000", "ec.critic_ratio=0.2"),
    *("ec.actor_ratio=0.1", "ec.population=4"),
)
CRITIC = ("ec.critic_job=30",)
SYNCHRONOUS = {
    "cem_rl": ("rl=td3", "ec=cem_rl", "ec.trained=2", "budget.steps=1200"),
    "cem_rl, told": ("rl=td3", "ec=cem_rl", "ec.trained=2", "ec.warm_up_actions=told", "budget.steps=1200"),
    "cem_rl, uniform": ("rl=ddpg", "ec=cem_rl", "ec.trained=1", "ec.warm_up_actions=uniform", "budget.steps=1200"),
    "p_cem_rl": ("rl=td3", "ec=p_cem_rl", "ec.trained=2", "ec.episodes=2", "budget.steps=2000"),
    "p_cem_rl, sac": ("rl=sac", "ec=p_cem_rl", "ec.trained=2", "rl.n_step=2", "budget.steps=1200"),
    "p_cem_rl, together": (
        *("rl=sac", "ec=p_cem_rl", "ec.trained=4", "ec.train_together=2", "ec.critic_ratio=0.3", "budget.steps=1200"),
    ),
}
ASYNCHRONOUS = {
    "p_cem_rl": (*CRITIC, "rl=td3", "ec=p_cem_rl", "ec.trained=2", "ec.parallel_critic=true", "budget.steps=1500"),
    "acem_rl": (*CRITIC, "rl=td3", "ec=acem_rl", "ec.slots=3", "budget.steps=1500"),
    "one_plus_one_rl": (*CRITIC, "rl=td3", "ec=one_plus_one_rl", "ec.mean_episodes=2", "budget.steps=1500"),
    "aes_rl": (*CRITIC, "rl=td3", "ec=aes_rl", "ec.slots=3", "ec.scale=200", "budget.steps=1500"),
    "aes_rl, bounded": (
        *(*CRITIC, "rl=sac", "ec=aes_rl", "ec.critics=2", "ec.max_critic_lag=200", "ec.warm_up_actions=told"),
        *("ec.slots=3", "budget.steps=1500"),
    ),
}
WORKERS = ("cluster=processes", "cluster.workers=2")


def evolved(directory: Path, *words: str) -> Path:
    assert go(*QUICK, *words, f"hydra.run.dir={directory}") == 0
    return directory


def bits(directory: Path) -> Any:
    return fingerprint(directory)["state"]["run"], journal(directory)


def jobs(directory: Path) -> list[dict[str, Any]]:
    """Lines of jobs.jsonl, without what the clock and the cluster say."""
    lines = map(json.loads, (directory / "jobs.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k not in ("worker", "began", "trained", "ended")} for line in lines]


def check_critics(run: Callable[[], Path], patch: pytest.MonkeyPatch) -> None:
    """Each version of a critic is made of the one before, and is another; trained individuals follow the version that
    the journal names, and take turns at the chains."""
    begun: list[Any] = []
    made: dict[int, list[Any]] = {}
    guides: dict[int, Any] = {}
    train, live = JobWorker.train_critic, JobWorker.live

    def trains(self: JobWorker, address: Any, job: Any) -> dict[str, Any]:
        one, answer = CriticSteps(*job), train(self, address, job)
        begun.append((one.chain, np.array(one.state["q"])))
        made.setdefault(one.chain, []).append(np.array(answer["state"]["q"]))
        return answer

    def lives(self: JobWorker, address: Any, job: Any) -> dict[str, Any]:
        one = Lifetime(*job)
        if one.guide:
            guides.update(dict.fromkeys(one.ids, np.array(one.guide["q"])))
        return live(self, address, job)

    patch.setattr(JobWorker, "train_critic", trains)
    patch.setattr(JobWorker, "live", lives)
    lines = jobs(run())
    for chain, versions in made.items():
        starts = [q for one, q in begun if one == chain]
        assert len(versions) > 2
        for before, start in zip(versions, starts[1:], strict=False):
            np.testing.assert_array_equal(start, before)
        assert all((a != b).mean() > 0.5 for a, b in pairwise([starts[0], *versions]))
    trained = [one for one in lines if one["kind"] == "trained"]
    assert len(trained) > 2
    for number, one in enumerate(trained):
        versions = made[number % len(made)]
        assert one["critic"] > 0
        np.testing.assert_array_equal(guides[one["individual"]], versions[one["critic"] - 1])
