"""What an evolution with a shared critic records of its workers' time."""

from __future__ import annotations

import json
import time
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from harness import go
from hypothesis import given
from hypothesis import strategies as st

from evorl.cluster.transport.host import host_id
from evorl.population.critic_jobs import CRITIC, Worked
from evorl.population.critic_records import Clocks, WorkSeconds

KINDS = st.sampled_from([CRITIC, "trained", "evolved"])
LENGTHS = st.tuples(KINDS, *[st.integers(0, 50)] * 3)  # kind, waiting before it, training, playing
LISTED = {"train/uncounted_steps", "critic/lag", "critic/gradient_steps"} | {
    f"speed/{name}_seconds" for name in ("play", "train_actor", "train_critic", "wait")
}


def test_seconds_of_two_workers() -> None:
    work = WorkSeconds()
    work.add("trained", Worked(7, 100.0, 102.0, 105.0))
    work.add(CRITIC, Worked(8, 100.0, 104.0, 104.0))
    work.add("evolved", Worked(7, 106.5, 106.5, 108.0))  # 1.5 s after its last
    work.add(CRITIC, Worked(8, 104.25, 106.25, 106.25))
    seconds = {"play": 4.5, "train_actor": 2.0, "train_critic": 6.0, "wait": 1.75}
    assert work.take() == {f"speed/{name}_seconds": x for name, x in seconds.items()}
    assert set(work.take().values()) == {0.0}


def test_a_new_process_has_not_waited() -> None:
    work = WorkSeconds()
    work.add("evolved", Worked(7, 1.0, 1.0, 2.0))
    work.add("evolved", Worked(9, 50.0, 50.0, 51.0))  # in place of 7, which died
    assert work.take()["speed/wait_seconds"] == 0.0


@given(st.lists(st.lists(LENGTHS, min_size=1, max_size=6), min_size=1, max_size=3), st.randoms(), st.integers(1, 5))
def test_the_seconds_are_those_of_all_workers(people: list[list[tuple[Any, ...]]], order: Any, rows: int) -> None:
    """In whatever order the answers come, and however often a row of metrics is written."""
    jobs, spans = list[tuple[str, Worked]](), 0.0
    for process, lengths in enumerate(people):
        clock = 0.0
        for place, (kind, wait, train, play) in enumerate(lengths):
            began = clock + (wait if place else 0)
            clock = began + train + (0 if kind == CRITIC else play)
            jobs.append((kind, Worked(process, began, began + train, clock)))
        spans += clock
    order.shuffle(jobs)
    work, total = WorkSeconds(), 0.0
    for number, (kind, worked) in enumerate(jobs, 1):
        work.add(kind, worked)
        if number % rows == 0:
            row = work.take()
            assert min(row.values()) >= 0.0
            total += sum(row.values())
    assert total + sum(work.seconds.values()) == pytest.approx(spans)


@pytest.mark.slow
def test_a_wall_clock_that_is_set_changes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reading of the wall clock is an hour before the one before."""
    real, readings = time.time, count()
    monkeypatch.setattr(time, "time", lambda: real() - 3600 * next(readings))
    words = ("mdp=pendulum", "mdp.time_limit=20", "rl=td3", "ec=acem_rl", "rl.net.hidden=[8]", "rl.batch=16")
    more = ("eval.every=0", "eval.episodes=1", "rl.warm_up=60", "rl.capacity=1000", "ec.critic_ratio=0.1")
    last = ("ec.actor_ratio=0.1", "ec.population=2", "ec.slots=1", "record.tensorboard=false", "rl.slots=1")
    began = time.monotonic()
    assert go(*words, *more, *last, "budget.steps=200", f"hydra.run.dir={tmp_path / 'run'}") == 0
    assert go(f"resume={tmp_path / 'run'}", "budget.steps=400") == 0
    took = time.monotonic() - began
    jobs = [json.loads(line) for line in (tmp_path / "run" / "jobs.jsonl").read_text().splitlines()]
    assert all(0 <= job["began"] <= job["trained"] <= job["ended"] <= took for job in jobs)


def test_clocks_of_other_hosts_are_read_as_of_this_one() -> None:
    """The first host's clock is 90 s behind, the second one's 5 s before; answers take from 0.5 to 3 s."""
    clocks, boot = Clocks(), host_id().partition(" ")[0]
    here = [Worked(7, 1.0, 2.0, 3.0, f"{boot} 42 0")]
    assert clocks.here(here, 9.0) == here
    other = [Worked(7, 10.0, 11.0, 12.0, "other 1 0"), Worked(7, 12.0, 12.0, 14.0, "other 1 0")]
    assert [one[1:4] for one in clocks.here(other, 106.0)] == [(102, 103, 104), (104, 104, 106)]
    assert clocks.here([Worked(8, 20.0, 20.0, 30.0, "other 9 0")], 120.5)[0][1:4] == (110.5, 110.5, 120.5)
    assert clocks.here([Worked(7, 40.0, 41.0, 50.0, "other 1 0")], 143.0)[0][1:4] == (130.5, 131.5, 140.5)
    assert clocks.here([Worked(7, 105.0, 106.0, 107.0, "third 1 0")], 102.5)[0][1:4] == (100.5, 101.5, 102.5)


def test_processes_of_two_hosts_with_one_number_are_two_workers() -> None:
    work = WorkSeconds()
    work.add("evolved", Worked(7, 1.0, 1.0, 2.0, "a"))
    work.add("evolved", Worked(7, 50.0, 50.0, 51.0, "b"))
    assert work.take()["speed/wait_seconds"] == 0.0


def test_what_a_run_records(tmp_path: Path) -> None:
    """Every number that a report needs is in the rows of a run, and waiting is what jobs.jsonl says."""
    assert go(
        *("mdp=pendulum", "mdp.time_limit=50", "rl=td3", "ec=acem_rl", "rl.net.hidden=[8]", "rl.batch=16"),
        *("eval.every=0", "rl.warm_up=200", "rl.capacity=1000", "ec.critic_ratio=0.2", "ec.actor_ratio=0.1"),
        *("ec.population=4", "ec.slots=3", "ec.critic_job=30", "budget.steps=1500", "cluster=processes"),
        *("cluster.workers=2", "record.tensorboard=false", f"hydra.run.dir={tmp_path}"),
    ) == 0  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    names = ("trained_share", "elites_trained", "sigma", "mean_norm", "variance_norm", "staleness")
    assert {name for row in rows for name in row} >= LISTED | {f"population/{name}" for name in names}
    jobs = [json.loads(line) for line in (tmp_path / "jobs.jsonl").read_text().splitlines()]
    waited = 0.0
    for worker in {job["worker"] for job in jobs}:
        own = sorted((job["began"], job["ended"]) for job in jobs if job["worker"] == worker)
        waited += sum(after - before for (_, before), (after, _) in pairwise(own))
    assert sum(row.get("speed/wait_seconds", 0.0) for row in rows) == pytest.approx(
        waited, abs=0.05 + 0.002 * len(jobs)
    )
