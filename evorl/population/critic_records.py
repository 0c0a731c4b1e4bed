"""What an evolution with a shared critic records: lines of jobs.jsonl, and metrics of its distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evorl.ec.shared_critic import TRAINED, SharedCriticEvolver
from evorl.population.critic_jobs import CRITIC, CriticSteps, Job, Worked
from evorl.rl.core import Metrics


def job_rows(
    job: Job, worked: Sequence[Worked], worker: int, began: float, step: int, rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Lines of jobs.jsonl, one for each individual of a job, or one for a critic.

    They are the journal of a run, and what its workers did. Times are seconds since the run began. ``rows``: what
    population.jsonl says of the individuals.
    """
    steps = job.given.gradient_steps * (len(job.given.targets) if isinstance(job.given, CriticSteps) else 1)
    ended = rows or [{"id": None, "step": step, "objectives": None}]
    return [
        {
            "job": job.number, "kind": job.kind, "individual": row["id"],
            "critic": job.version if job.reads else None, "length": job.given.length if job.reads else None,
            "gradient_steps": steps, "step": row["step"], "objectives": row["objectives"], "worker": worker,
            **{name: round(getattr(one, name) - began, 3) for name in ("began", "trained", "ended")},
        }
        for one, row in zip(worked, ended, strict=True)
    ]  # fmt: skip


def add_seconds(seconds: dict[str, float], kind: str, worked: Sequence[Worked]) -> None:
    """Add the time that a job of this kind took, in seconds, to what was worked before."""
    seconds["train_critic" if kind == CRITIC else "train_actor"] += sum(one.trained - one.began for one in worked)
    seconds["play"] += sum(one.ended - one.trained for one in worked)


def distribution_metrics(evolver: SharedCriticEvolver) -> Metrics:
    """Norms of the distribution; the trained share and the mean fitness of the population that it was made of."""
    metrics: Metrics = {
        "population/mean_norm": float(np.linalg.norm(evolver.mean)),
        "population/variance_norm": float(np.linalg.norm(evolver.variance)),
    }
    if evolver.population:
        trained = [one.individual.role == TRAINED for one in evolver.population]
        metrics["population/trained_share"] = sum(trained) / len(trained)
        worth = np.array([one.objectives[0] for one in evolver.population])
        if np.isfinite(worth).any():
            metrics["population/mean"] = float(worth[np.isfinite(worth)].mean())
    return metrics
