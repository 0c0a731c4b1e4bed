"""Reader of ``jobs.jsonl``, what the workers of an evolution with a shared critic did, and its utilisation.

A job is one or two stretches of time in which a worker does one thing. Shapes: K stretches, W workers, B bins of time,
A = 6 activities. Times are seconds since the run began; a resumed run continues them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from evorl.analysis.runs import RunRecord, further_lines, is_number
from evorl.analysis.statistics import Floats
from evorl.analysis.tables import Row
from evorl.util.types import Steps

ACTIVITIES = (
    "training the critic",
    "training an actor",
    "playing trained",
    "playing evolved",
    "evaluating the mean",
    "random episodes",
)
CRITIC, TRAIN, TRAINED, EVOLVED, MEAN, RANDOM = range(len(ACTIVITIES))
_PLAYED = {"trained": TRAINED, "evolved": EVOLVED, "mean": MEAN, "random": RANDOM, "critic": CRITIC}
"""What a worker does by the kind of a job, between the end of training and the end of the job."""


class LoggedJob(msgspec.Struct):
    """What the report needs of a line, as written by `evorl.population.critic_records`."""

    job: int
    kind: str
    worker: int
    step: Steps
    began: float
    trained: float
    ended: float
    gradient_steps: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretches:
    """K stretches of time in the order of their beginning; in each a worker does one thing."""

    worker: NDArray[np.intp]
    activity: NDArray[np.intp]
    """Index in `ACTIVITIES`."""
    began: Floats
    ended: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class JobLog:
    """The N >= 1 finished jobs of a run, in the order in which their answers were taken."""

    run: RunRecord
    jobs: Sequence[LoggedJob]
    damaged: int = 0
    """Number of complete lines that are not valid."""

    @cached_property
    def stretches(self) -> Stretches:
        rows = [row for job in self.jobs for row in _stretches(job)]
        rows.sort(key=lambda row: row[2])
        worker, activity, began, ended = zip(*rows, strict=True) if rows else ((), (), (), ())
        return Stretches(
            worker=np.array(worker, np.intp), activity=np.array(activity, np.intp),
            began=np.array(began, np.float64), ended=np.array(ended, np.float64),
        )  # fmt: skip

    @cached_property
    def workers(self) -> list[int]:
        return sorted({job.worker for job in self.jobs})

    @cached_property
    def spans(self) -> Floats:
        """Beginning of the first and end of the last job of each worker `[W, 2]`, in the order of `workers`."""
        own = {worker: [job for job in self.jobs if job.worker == worker] for worker in self.workers}
        return np.array([(min(job.began for job in jobs), max(job.ended for job in jobs)) for jobs in own.values()])

    @property
    def span(self) -> tuple[float, float]:
        """Beginning of the first and end of the last job."""
        return float(self.spans[:, 0].min()), float(self.spans[:, 1].max())

    @property
    def slots(self) -> int | None:
        """Individuals that may be at work at once, from the config."""
        size = self.run.config.get("ec.slots") or self.run.config.get("ec.population")
        return int(size) if size is not None and is_number(size) else None

    def seconds(self, edges: Floats) -> Floats:
        """Seconds that each worker spent on each activity between neighbouring edges `[B + 1]`: `[B, W, A]`."""
        s = self.stretches
        return np.stack([
            np.stack([_seconds_between(edges, s.began[own & (s.activity == activity)],
                                       s.ended[own & (s.activity == activity)])
                      for activity in range(len(ACTIVITIES))], axis=-1)
            for own in (s.worker == worker for worker in self.workers)
        ], axis=1)  # fmt: skip

    def presence(self, edges: Floats) -> Floats:
        """Seconds between neighbouring edges `[B + 1]` from each worker's first job to its last: `[B, W]`.

        A worker that died and was replaced, or that a resumed run has no more, is not idle after its last job.
        """
        return np.stack([_seconds_between(edges, span[:1], span[1:]) for span in self.spans], axis=1)

    def bins(self, most: int) -> Floats:
        """Edges of equal bins over the whole run, about one for each job of a worker, at most ``most``."""
        count = min(max(len(self.jobs) // len(self.workers), 10), most)
        low, high = self.span
        return np.linspace(low, max(high, low + 1e-3), count + 1)


def _stretches(job: LoggedJob) -> list[tuple[int, int, float, float]]:
    """Return worker, activity, beginning and end of what a job consists of, without empty stretches."""
    training = CRITIC if job.kind == "critic" else TRAIN
    both = [(training, job.began, job.trained), (_PLAYED[job.kind], job.trained, job.ended)]
    return [(job.worker, activity, began, ended) for activity, began, ended in both if ended > began]


def _seconds_between(edges: Floats, began: Floats, ended: Floats) -> Floats:
    """Return the total length `[B]` of the parts of stretches `[K]` between neighbouring edges `[B + 1]`."""
    return np.diff(_time_since(edges, began) - _time_since(edges, ended))


def _time_since(times: Floats, began: Floats) -> Floats:
    """Return, for each time `[B]`, the sum over all earlier beginnings `[K]` of the time since then."""
    past = np.sort(began)
    count = np.searchsorted(past, times)
    return np.asarray(count * times - np.r_[0.0, np.cumsum(past)][count])


def read_job_log(run: RunRecord) -> JobLog | None:
    """Read the jobs of a run; None if there are none. An incomplete last line is ignored."""
    decoder = msgspec.json.Decoder(LoggedJob)
    lines = [_decode(decoder, text) for text in further_lines(run.directory, "jobs.jsonl")]
    jobs = [job for job in lines if job is not None]
    return JobLog(run=run, jobs=jobs, damaged=len(lines) - len(jobs)) if jobs else None


def _decode(decoder: msgspec.json.Decoder[LoggedJob], text: bytes) -> LoggedJob | None:
    try:
        job = decoder.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    return job if job.kind in _PLAYED and job.began <= job.trained <= job.ended < math.inf else None


def work_rows(log: JobLog) -> list[Row]:
    """Return a row of the table of work for all workers together, and one for each if there are several.

    Steps and gradient steps are those of the run; the newest metrics know the uncounted steps.
    """
    whole = np.array(log.span)
    seconds, present = log.seconds(whole)[0], log.presence(whole)[0]
    rows = [_work_row("all", seconds.sum(axis=0), float(present.sum()), log.jobs) | _steps(log)]
    if len(log.workers) > 1:
        for worker, own, seconds_there in zip(log.workers, seconds, present, strict=True):
            rows.append(
                _work_row(str(worker), own, float(seconds_there), [job for job in log.jobs if job.worker == worker])
            )
    columns = dict.fromkeys(rows[0])
    return [columns | row for row in rows]


def _work_row(name: str, seconds: Floats, present: float, jobs: Sequence[LoggedJob]) -> Row:
    """Return the row of a worker: its seconds `[A]` on each activity in the time that it was there."""
    busy = float(seconds.sum())
    steps = {kind: sum(job.gradient_steps for job in jobs if job.kind == kind) for kind in ("trained", "critic")}
    return {
        "worker": name, "jobs": len(jobs), "busy share": busy / present if present else None,
        "playing (s)": float(seconds[[TRAINED, EVOLVED, MEAN, RANDOM]].sum()),
        "training actors (s)": float(seconds[TRAIN]), "training critics (s)": float(seconds[CRITIC]),
        "waiting (s)": max(present - busy, 0.0),
        "gradient steps of actors": steps["trained"], "gradient steps of critics": steps["critic"],
    }  # fmt: skip


def _steps(log: JobLog) -> Row:
    uncounted = log.run.last("train/uncounted_steps")
    return {"counted steps": max(job.step for job in log.jobs), "uncounted steps": uncounted}
