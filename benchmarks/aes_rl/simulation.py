"""Evolution with a shared critic as discrete events: how long workers take, with and without a generation's barrier.

A trained individual takes the time of its training and of its play, any other that of its play. Synchronous, a
generation has stages, and each waits for the last of the one before: the critic learns on one worker, then the trained
individuals on all of them, then everybody plays. Asynchronous, a worker takes the next individual when it is free; the
mean is played after each individual, and the critic learns as jobs among the others, one at a time, which bounds the
individuals per second.
The time to play is random, lognormal with a coefficient of variation; the times to train are not.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Stages(NamedTuple):
    """Seconds of each stage, or any other unit."""

    train: float
    """One individual."""
    play: float
    """One individual, on average."""
    critic: float = 0.0
    """For as many environment steps as one individual plays."""
    mean: float = 0.0
    """To evaluate the mean for one individual."""


class Shape(NamedTuple):
    """The search."""

    population: int = 10
    trained: int = 5
    """Individuals of each population that are trained."""
    variation: float = 0.0
    """Coefficient of variation of the time to play."""


class Outcome(NamedTuple):
    per_second: float
    """Individuals."""
    busy: float
    """Share of the workers' time in which they do anything."""
    speedup: float
    """Over one worker that does the same work."""


REFERENCE = Stages(train=5.0, play=1.0)
"""Training costs five times as much as an episode; neither critic nor evaluations of the mean."""


def synchronous(stages: Stages, shape: Shape, workers: int, generations: int = 1000, seed: int = 0) -> Outcome:
    """Whole generations, one after the other."""
    rng = np.random.default_rng(seed)
    work = spent = 0.0
    for _ in range(generations):
        critic, training = shape.population * stages.critic, [stages.train] * shape.trained
        playing = _durations(rng, stages.play, shape.variation, shape.population)
        work += critic + sum(training) + sum(playing)
        spent += critic + _makespan(training, workers) + _makespan(playing, workers)
    return Outcome(generations * shape.population / spent, work / (workers * spent), work / spent)


def asynchronous(stages: Stages, shape: Shape, workers: int, individuals: int = 1000, seed: int = 0) -> Outcome:
    """So many individuals one by one, those in flight to their end; no step of the critic runs beside another."""
    rng = np.random.default_rng(seed)
    trained = rng.permutation(np.arange(individuals) % shape.population < shape.trained)
    playing = _durations(rng, stages.play, shape.variation, individuals)
    jobs = list[float]()
    for is_trained, play in zip(trained.tolist(), playing, strict=True):
        jobs += [stages.critic, stages.train * is_trained + play + stages.mean]
    work = sum(jobs)
    spent = max(_makespan(jobs, workers), individuals * stages.critic)
    return Outcome(individuals / spent, work / (workers * spent), work / spent)


def _durations(rng: np.random.Generator, mean: float, variation: float, number: int) -> list[float]:
    spread = math.sqrt(math.log1p(variation**2))
    return [mean * math.exp(spread * z - spread**2 / 2) for z in rng.standard_normal(number)]


def _makespan(durations: Iterable[float], workers: int) -> float:
    """When the last job ends, where each worker takes the next job when it is free."""
    free = [0.0] * workers
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
