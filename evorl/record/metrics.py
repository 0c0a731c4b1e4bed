"""The one list of metric names: the same for every algorithm, each with its unit and meaning.

A word in angle brackets stands for a name that a world brings along: a reward, or a
result of an episode. ``python -m evorl.record.metrics`` prints ``docs/metrics.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from evorl.util.errors import nearest


class Metric(NamedTuple):
    unit: str
    meaning: str


METRICS: dict[str, Metric] = {
    # While it trains: episodes played with the stochastic policy.
    "train/return": Metric("reward", "undiscounted return, all named rewards summed, mean of the last 100 episodes"),
    "train/return_<reward>": Metric("reward", "the same of one named reward, where a world has several"),
    "train/episode_length": Metric("env steps, or what the world reports", "mean length of the last 100 episodes"),
    "train/episodes": Metric("episodes", "episodes finished since the run began"),
    "train/<result>": Metric("the world's own", "mean of a named result (win, score) over the last 100 episodes"),
    # Judged: whole episodes on seeds of their own, with normalisers frozen.
    "eval/return_mean": Metric("reward", "mean return of the deterministic policy"),
    "eval/return_std": Metric("reward", "its standard deviation over episodes"),
    "eval/return_min": Metric("reward", "its smallest"),
    "eval/return_max": Metric("reward", "its largest"),
    "eval/stochastic_return_mean": Metric("reward", "mean return of the stochastic policy"),
    "eval/stochastic_return_std": Metric("reward", "its standard deviation over episodes"),
    "eval/stochastic_return_min": Metric("reward", "its smallest"),
    "eval/stochastic_return_max": Metric("reward", "its largest"),
    "eval/length_mean": Metric(
        "env steps, or what the world reports", "mean length of the deterministic policy's episodes"
    ),
    "eval/<result>_mean": Metric("the world's own", "mean of a named result, deterministic policy"),
    # What the update minimised and how it went; means over the update's minibatches.
    "loss/policy": Metric("-", "the policy's objective, negated"),
    "loss/value": Metric("reward²", "error of the value estimate, before its coefficient"),
    "loss/total": Metric("-", "what the optimiser saw: every term with its coefficient"),
    "policy/entropy": Metric("nats", "mean entropy of the action distribution"),
    "policy/kl": Metric("nats", "KL(old ‖ new), estimated by the mean of r - 1 - ln r"),
    "policy/clip_fraction": Metric("fraction", "decisions whose ratio left the clip range"),
    "policy/lag": Metric("updates", "asynchronous: age of the weights that acted, mean of the last 100 batches"),
    "policy/lag_max": Metric("updates", "asynchronous: the largest of the same 100 batches"),
    "policy/dropped_fragments": Metric("fragments", "asynchronous: batches too old to learn from, since the run began"),
    "value/explained_variance": Metric(
        "fraction", "1 - Var(target - value) / Var(target); 1 is perfect, 0 is a constant"
    ),
    "optimizer/lr": Metric("-", "learning rate in use"),
    "optimizer/grad_norm": Metric("-", "mean global norm of the gradient, before clipping"),
    "optimizer/updates": Metric("gradient steps", "gradient steps since the run began"),
    # A population.
    "population/best": Metric("fitness", "best fitness so far"),
    "population/mean": Metric("fitness", "mean fitness of the current population"),
    "population/std": Metric("fitness", "its standard deviation"),
    "population/evaluations": Metric("individuals", "individuals evaluated since the run began"),
    "population/generation": Metric(
        "generations", "generations learned from; of pbt: evaluations that every member has had"
    ),
    "population/failed": Metric("individuals", "individuals without a fitness since the run began"),
    "population/diversity": Metric(
        "fraction",
        "mean deviation of the genes, in units of their ranges; without genes: of weights, in units of their size",
    ),
    "population/age": Metric("evaluations", "mean number of evaluations since the present individuals were made"),
    "population/survived": Metric("fraction", "individuals that outlived the last generation"),
    "population/exploits": Metric("individuals", "members that were taken over since the run began"),
    "population/sigma": Metric("-", "of cma_es and one_plus_one the step size; of cem the mean deviation of a number"),
    "population/cap": Metric(
        "environment steps", "of openai_es, the next generation's longest episode, if its world's is not shorter"
    ),
    "population/coverage": Metric("fraction", "cells of the archive that hold an individual"),
    "population/beyond": Metric("fraction", "last generation's individuals beyond the archive's ranges, in edge cells"),
    "optimizer/update_ratio": Metric("fraction", "length of the last step of the parameters over their own"),
    # What it cost.
    "speed/steps_per_second": Metric("env steps/s", "since the row before, evaluation and saving aside"),
    "speed/sample_seconds": Metric("s", "time spent playing since the row before"),
    "speed/update_seconds": Metric("s", "time spent learning since the row before"),
    "speed/learner_wait": Metric("s", "asynchronous: time the learner waited for a batch, mean of a batch"),
    "speed/actor_wait": Metric("s", "asynchronous: time a member waited before it played on, mean of a batch"),
    "cluster/replaced": Metric("workers", "worker processes that died or hung and were replaced, since the start"),
    "cluster/refused": Metric(
        "messages", "messages and connections that were not of the run, at its driver or a worker, since the start"
    ),
    "cluster/sent": Metric(
        "bytes", "arrays sent to other machines, by the driver and by workers who pass them on, since the start"
    ),
}


def unknown(name: str) -> bool:
    """Whether no entry of `METRICS`, plain or with a world's own word, has this name."""
    return name not in METRICS and not _pattern().fullmatch(name)


def check(names: Iterable[str]) -> None:
    """Raise ValueError for the first name that is not registered."""
    for name in names:
        if unknown(name):
            raise ValueError(f"{name!r} is no registered metric (evorl.record.metrics){nearest(name, METRICS)}")


def page() -> str:
    """The text of ``docs/metrics.md``."""
    lines = ["# Metrics", "", *_INTRODUCTION, "", "| name | unit | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {unit} | {meaning} |" for name, (unit, meaning) in METRICS.items()]
    return "\n".join(lines) + "\n"


_INTRODUCTION = (
    "Every line of `metrics.jsonl` has `step` (environment steps of the whole run), `time` (seconds since the run",
    "began, time between a stop and a resume left out) and some of the numbers below. A number that is not finite is",
    "`null`. A word in angle brackets stands for a name the world brings along.",
    "",
    "This page is printed by `python -m evorl.record.metrics`.",
)


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile("|".join(re.sub(r"<\w+>", r"[^/\\s]+", name) for name in METRICS if "<" in name))


if __name__ == "__main__":
    print(page(), end="")
