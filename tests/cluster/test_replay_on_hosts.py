"""Evolution with a shared critic over several hosts, simulated on this one: the same bits as in one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from evolution_runs import journal
from harness import experiment_of, fingerprint, newest, rows, train_in
from islands import IslandLauncher, Islands

from evorl.cluster.workers.feeder import Feeder
from evorl.cluster.workers.inbox import Inbox
from evorl.replay import shared

QUICK = (
    *("mdp=pendulum", "mdp.time_limit=50", "record.tensorboard=false", "eval.episodes=2", "eval.every=0"),
    *("rl=td3", "rl.net.hidden=[8]", "rl.batch=16", "rl.warm_up=200", "ec=cem_rl", "ec.population=4"),
    *("ec.critic_ratio=0.2", "ec.actor_ratio=0.1", "ec.trained=2"),
)
CAPACITIES = {"large": "rl.capacity=2000", "wraps": "rl.capacity=200"}
HALF, WHOLE = "budget.steps=650", "budget.steps=1200"
HOSTS = (IslandLauncher.host, "b", "b")  # a worker beside the driver, and two on another host


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers on other hosts see that they are there, so that they cannot map the driver's memory."""
    work = IslandLauncher._work

    def worked(self: IslandLauncher, parent: int, token: bytes, worker: int, *rest: Any) -> None:
        shared.host_id = lambda: self.hosts[worker % len(self.hosts)]  # in the worker's process alone
        work(self, parent, token, worker, *rest)

    monkeypatch.setattr(IslandLauncher, "_work", worked)
    monkeypatch.setattr(shared, "host_id", lambda: IslandLauncher.host)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    place = tmp_path_factory.mktemp("alone")

    @cache
    def made(case: str) -> Path:
        train_in(place / case, experiment_of(*QUICK, CAPACITIES[case], WHOLE))
        return place / case

    return made


def spread(directory: Path, *words: str, hosts: tuple[str, ...] = HOSTS) -> Path:
    train_in(directory, replace(experiment_of(*QUICK, *words), cluster=Islands(workers=len(hosts), hosts=hosts)))
    return directory


def bits(directory: Path) -> Any:
    """All that a run has come to, without the evaluation that follows a stop."""
    run = fingerprint(directory)["state"]["run"]
    del run["best"]
    return run, journal(directory)


def counter(directory: Path, name: str) -> float:
    return max(row.get(name, 0) for row in rows(directory))


@pytest.mark.slow_cases(but=("wraps",))
@pytest.mark.parametrize("case", CAPACITIES)
def test_runs_over_hosts_equal_runs_in_one_process(case: str, alone: Callable[[str], Path], tmp_path: Path) -> None:
    there = spread(tmp_path / "there", CAPACITIES[case], WHOLE)
    assert bits(there) == bits(alone(case))
    assert newest(there)["run"]["learner"]["replay"]["count"] > 5 * 200  # far beyond the small ring
    assert counter(there, "cluster/sent") > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", CAPACITIES)
@pytest.mark.parametrize("moment", ["sent", "confirmed", "answered"])
def test_kills_on_another_host_change_nothing(
    case: str, moment: str, alone: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is killed while a piece of the replay is sent to it, when it has it, or after it has done a job."""
    send, confirm, complete = Feeder._send_piece, Feeder.confirm, Inbox._complete
    seen, struck = [0], list[int]()

    def strike(handle: Any) -> None:
        if handle.process.pid in struck:  # it takes a moment to die
            return
        seen[0] += 1
        if seen[0] % (4 if moment == "answered" else 1) == 0 and len(struck) < 4:
            struck.append(handle.process.pid)
            with suppress(ProcessLookupError):
                os.kill(handle.process.pid, signal.SIGKILL)

    def sends(self: Feeder, known: Any, position: Any, piece: object, hosts: Any) -> None:
        send(self, known, position, piece, hosts)
        if moment == "sent":
            strike(next(iter(hosts.values())))

    def confirms(self: Feeder, handle: Any, *held: Any) -> None:
        confirm(self, handle, *held)
        if moment == "confirmed":
            strike(handle)

    def mapped(feeder: Feeder) -> set[int]:
        return {worker for worker, mapping in feeder._mappings.items() if mapping.done}

    def completed(self: Inbox, handle: Any, *answer: Any) -> None:
        complete(self, handle, *answer)
        if moment == "answered" and handle.number in mapped(self._sender.feeder):
            strike(handle)

    monkeypatch.setattr(Feeder, "_send_piece", sends)
    monkeypatch.setattr(Feeder, "confirm", confirms)
    monkeypatch.setattr(Inbox, "_complete", completed)
    there = spread(tmp_path / "there", CAPACITIES[case], WHOLE)
    assert len(struck) == 4 and counter(there, "cluster/replaced") >= 3
    assert bits(there) == bits(alone(case))


@pytest.mark.slow
@pytest.mark.parametrize("case", CAPACITIES)
def test_a_run_goes_on_over_other_hosts(case: str, alone: Callable[[str], Path], tmp_path: Path) -> None:
    """With jobs in flight, on workers that know nothing of the replay yet."""
    train_in(tmp_path / "run", experiment_of(*QUICK, CAPACITIES[case], HALF))
    assert newest(tmp_path / "run")["run"]["in_flight"]
    assert bits(spread(tmp_path / "run", CAPACITIES[case], WHOLE, hosts=("a", "b"))) == bits(alone(case))
