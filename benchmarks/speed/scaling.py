"""A model of a run on many workers: what its driver has to do for each fragment, and how fast that lets it be.

One member a worker, one worker a core. A synchronous run sends weights out, lets everybody play, takes all answers and
learns from all of them. An asynchronous one takes one fragment after the other; with the call for its next one the
worker gets the newest weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from evorl.cluster.transport.broadcast_relay import FAN_OUT

Fan = Literal["star", "tree", "none"]
"""Where the weights of a synchronous run go: from the driver to every worker, along a tree of hosts (what evorl does),
or nowhere, since every host has them (unchanged arrays)."""
Cost = tuple[float, float]
"""Seconds of the driver's thread: once, and for every worker that the group has."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one member and the learner do with one fragment."""

    fragment: float  # environment steps
    play_s: float
    learn_s: float
    weights: float  # bytes
    answer: float  # bytes of a fragment and its member's state


@dataclass(frozen=True, kw_only=True)
class Place:
    """What messages and machines cost."""

    call: Cost  # one call of `all` and its answer, without arrays
    take: Cost  # one answer of `gather` and the call for the next one, with weights
    memory: float  # bytes/s of a copy
    curve: float  # bytes/s that one I/O thread encrypts and sends
    network: float = 25e9 / 8  # bytes/s of a host's card, assumed
    latency_s: float = 100e-6  # of one hop, assumed
    cores: int = 64  # of a host, assumed
    degree: int = FAN_OUT  # of the tree

    @property
    def wire(self) -> float:
        return min(self.network, self.curve)

    def hosts(self, workers: int) -> int:
        return math.ceil(workers / self.cores)


def at(cost: Cost, workers: int) -> float:
    return cost[0] + workers * cost[1]


def out(w: Work, p: Place, workers: int, fan: Fan) -> float:
    """Seconds until the last worker has its weights."""
    local, hosts = w.weights / p.memory, p.hosts(workers)
    if hosts == 1 or fan == "none":
        return local
    if fan == "star":
        return workers * w.weights / p.wire + p.latency_s + local
    return levels(hosts, p.degree) * (min(p.degree, hosts) * w.weights / p.wire + p.latency_s) + local


def levels(hosts: int, degree: int) -> int:
    """Of a tree whose every node has up to ``degree`` more, the driver aside."""
    reached = depth = 0
    while reached < hosts:
        depth += 1
        reached += degree**depth
    return depth


def sync(w: Work, p: Place, workers: int, fan: Fan = "tree") -> float:
    """Environment steps per second of a run in lockstep."""
    taking = workers * (at(p.call, workers) + 2 * w.answer / p.memory)
    coming = workers * w.answer / p.wire if workers > p.cores else 0.0
    return workers * w.fragment / (out(w, p, workers, fan) + w.play_s + max(taking, coming) + workers * w.learn_s)


def period(w: Work, p: Place, workers: int) -> float:
    """Seconds that the driver of an asynchronous run needs for each fragment."""
    wire = (w.answer + w.weights) / p.wire if workers > p.cores else 0.0
    return max(at(p.take, workers) + w.learn_s, wire)


def stream(w: Work, p: Place, workers: int) -> float:
    """Environment steps per second of an asynchronous run."""
    return w.fragment * min(workers / w.play_s, 1 / period(w, p, workers))


def crowded(w: Work, p: Place, workers: int, cores: int) -> float:
    """`stream` where the driver and its workers share few cores."""
    return min(stream(w, p, workers), w.fragment * cores / (w.play_s + period(w, p, workers)))


def fed(w: Work, p: Place) -> float:
    """Workers that keep an asynchronous learner just busy, messages aside that grow with their number."""
    return w.play_s / (p.take[0] + w.learn_s)
