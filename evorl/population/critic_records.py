"""What an evolution with a shared critic records: lines of jobs.jsonl, and metrics of its distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from evorl.ec.shared_critic import TRAINED, SharedCriticEvolver
from evorl.population.critic_jobs import CRITIC, CriticSteps, Job, Worked
from evorl.rl.core import Metrics


def job_row(job: Job, worked: Worked, worker: int, began: float, step: int, objectives: Any) -> dict[str, Any]:
    """A line of jobs.jsonl: the journal of a run, and what its workers did; times are seconds since the run began."""
    steps = job.given.gradient_steps * (len(job.given.targets) if isinstance(job.given, CriticSteps) else 1)
    return {
        "job": job.number, "kind": job.kind, "individual": None if job.kind == CRITIC else job.given[0],
        "critic": job.version if job.reads else None, "length": job.given.length if job.reads else None,
        "gradient_steps": steps, "step": step, "objectives": objectives, "worker": worker,
        **{name: round(getattr(worked, name) - began, 3) for name in ("began", "trained", "ended")},
    }  # fmt: skip


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
