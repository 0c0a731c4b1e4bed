"""What an evolution with a shared critic records: lines of jobs.jsonl, and metrics of its distribution and its time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evorl.cluster.transport.host import host_id
from evorl.ec.shared_critic import TRAINED, SharedCriticEvolver
from evorl.population.critic_jobs import CRITIC, CriticSteps, Job, Worked
from evorl.rl.core import Metrics
from evorl.util.types import StateDict


def distribution_metrics(evolver: SharedCriticEvolver) -> Metrics:
    """Norms of the distribution; the trained share and the mean fitness of the population that it was made of."""
    metrics: Metrics = {
        "population/mean_norm": float(np.linalg.norm(evolver.mean)),
        "population/variance_norm": float(np.linalg.norm(evolver.variance)),
    }
    if evolver.population:
        trained = [evaluation.individual.role == TRAINED for evaluation in evolver.population]
        metrics["population/trained_share"] = sum(trained) / len(trained)
        fitness = np.array([evaluation.objectives[0] for evaluation in evolver.population])
        if np.isfinite(fitness).any():
            metrics["population/mean"] = float(fitness[np.isfinite(fitness)].mean())
    return metrics


class Clocks:
    """Reads the monotonic clocks of other hosts, which begin anywhere, as the clock of this one."""

    def __init__(self) -> None:
        self._behind: dict[str, float] = {}  # seconds by which the clock of a host is behind this one, by boot

    def here(self, worked: Sequence[Worked], arrived: float) -> list[Worked]:
        """Return what was worked for an answer that ``arrived`` at this time, in seconds of this host's clock.

        Clocks of another host are taken to be as far behind as its fastest answer shows, so its jobs are dated too late
        by the time that this answer was on its way. All processes of one host have the same clock.
        """
        boot = worked[-1].host.partition(" ")[0]
        if boot == host_id().partition(" ")[0]:
            return [*worked]
        behind = self._behind[boot] = min(self._behind.get(boot, math.inf), arrived - worked[-1].ended)
        return [
            Worked(part.process, part.began + behind, part.trained + behind, part.ended + behind, part.host)
            for part in worked
        ]


class WorkSeconds:
    """Seconds that workers played, trained and waited since the last row of metrics.

    A worker waits between its jobs. It is counted from its first job to its last one, so that one that never had a job,
    or that died and was replaced, does not wait. In all, the four numbers add up to this time, over all workers.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("play", "train_actor", "train_critic", "wait"), 0.0)
        self._spans: dict[tuple[str, int], tuple[float, float]] = {}  # first beginning and last end of each process

    def add(self, kind: str, worked: Worked) -> None:
        """Count a finished job of this kind. A worker's jobs may come in any order."""
        _, began, trained, ended, _ = worked
        self.seconds["train_critic" if kind == CRITIC else "train_actor"] += trained - began
        self.seconds["play"] += ended - trained
        first, last = self._spans.get(worked.worker, (began, began))
        self._spans[worked.worker] = min(first, began), max(last, ended)
        # a job that an earlier answer took for waiting is taken off again
        self.seconds["wait"] += max(first - began, 0.0) + max(ended - last, 0.0) - (ended - began)

    def take(self) -> Metrics:
        """Return the seconds as metrics and begin again. What was counted as waiting too early counts against later."""
        row = {f"speed/{name}_seconds": max(x, 0.0) for name, x in self.seconds.items()}
        self.seconds = dict.fromkeys(self.seconds, 0.0) | {"wait": min(self.seconds["wait"], 0.0)}
        return row


class WorkClock:
    """When the run began, and which worker did what since: lines of jobs.jsonl, and seconds of each kind of work."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seconds = WorkSeconds()
        self._clocks = Clocks()
        self._workers: dict[tuple[str, int], int] = {}  # numbers by host and process

    def lines(
        self, job: Job, worked: Sequence[Worked], arrived: float, step: int, rows: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the lines of a job, one for each individual, or one for a critic.

        They are the journal of a run, and what its workers did. Times are seconds since the run began. ``arrived`` is
        the time of the answer, and ``rows`` what population.jsonl says of the individuals.
        """
        task, rows = job.task, rows or [{"id": None, "step": step, "objectives": None}]
        for part in worked:
            self.seconds.add(job.kind, part)
        worker = self._workers.setdefault(worked[0].worker, len(self._workers))
        steps = task.gradient_steps * (len(task.targets) if isinstance(task, CriticSteps) else 1)
        return [
            {
                "job": job.number, "kind": job.kind, "individual": row["id"],
                "critic": job.version if job.reads else None, "length": task.length if job.reads else None,
                "gradient_steps": steps, "step": row["step"], "objectives": row["objectives"], "worker": worker,
                **{name: round(getattr(part, name) - self.began, 3) for name in ("began", "trained", "ended")},
            }
            for part, row in zip(self._clocks.here(worked, arrived), rows, strict=True)
        ]  # fmt: skip

    def state_dict(self) -> StateDict:
        return {"time": time.monotonic() - self.began, **self.seconds.seconds}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.began = time.monotonic() - state["time"]
        self.seconds.seconds = {name: x for name, x in state.items() if name != "time"}
