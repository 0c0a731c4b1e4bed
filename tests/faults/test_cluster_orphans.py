"""Processes of `cluster=processes` that nobody may forget: stopped as they begin, or started by a world."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import cluster_parents
import pytest
from cluster_parents import Parent, supervisors
from cluster_victims import Victim, send
from harness import ROOT

from evorl.cluster.processes import Processes, fork, launcher, orphans
from evorl.cluster.workers.group import RemoteGroup

PATIENCE_S = 5.0


def runs(pid: int) -> bool:
    """A process that has ended and that nobody has asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def check_gone(*pids: int) -> None:
    ends = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < ends, left
        time.sleep(0.01)


# ------------------------------------------------------------------ stopped as they begin


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], int]]:
    """Has the n-th process that is forked from now on stop while it still holds all files of its parent."""
    shared = memoryview(mmap.mmap(-1, 8)).cast("i")  # forks to come until then, and who it was
    close_files = fork._close_files

    def stop_there(keep: int) -> None:
        shared[0] -= 1
        if shared[0] == 0:
            shared[1] = os.getpid()
            os.kill(os.getpid(), signal.SIGSTOP)
        close_files(keep)

    def arm(number: int) -> Callable[[], int]:
        shared[0] = number
        return lambda: shared[1]

    monkeypatch.setattr(fork, "_close_files", stop_there)
    return arm


@pytest.mark.slow_cases(but=("-the supervisor's worker",))
@pytest.mark.parametrize(
    "number", [1, 2, 3], ids=["the driver's supervisor", "the supervisor's supervisor", "the supervisor's worker"]
)
@pytest.mark.parametrize("again", [False, True], ids=["", "and its supervisor is killed"])
def test_who_is_stopped_right_after_its_fork_keeps_nobody_waiting(
    number: int, again: bool, forks: Callable[[int], Callable[[], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds its parent's sockets: so whether the parent lives cannot be seen from these."""
    monkeypatch.setattr(launcher, "ANSWER_S", 1.0)
    group = Processes(workers=1, deadline_s=1.0).spawn(partial(Victim, Path("/nowhere"), "exits", "never"), 2)
    assert isinstance(group, RemoteGroup)
    try:
        stopped = forks(number)
        for pid in supervisors(group):
            os.kill(pid, signal.SIGKILL)
        pending = group.any("ask", 3)
        while not stopped():
            group.poll(0.001)
        if again:
            for pid in supervisors(group):
                os.kill(pid, signal.SIGKILL)
        assert pending.result() == 9
        assert group.all("add", 1) == [1, 2]
        check_gone(stopped())
        assert len(supervisors(group)) == 2
    finally:
        group.close()


# ------------------------------------------------------------------ started by a world


def end_worker(group: RemoteGroup) -> None:
    os.kill(group.all("pid")[0], signal.SIGKILL)


def end_supervisor(group: RemoteGroup) -> None:
    os.kill(supervisors(group)[0], signal.SIGKILL)


def end_supervisors(group: RemoteGroup) -> None:
    for pid in supervisors(group):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow_cases(but=("end_supervisor", "end_worker"))
@pytest.mark.parametrize("kill", [end_worker, end_supervisor, end_supervisors])
def test_what_a_world_has_started_ends_with_its_worker(kill: Callable[[RemoteGroup], None]) -> None:
    group = Processes(workers=1).spawn(Parent, 1)
    assert isinstance(group, RemoteGroup)
    try:
        worker, begun = *group.all("pid"), *group.all("begin")
        assert all(map(runs, begun))
        kill(group)
        check_gone(worker)
        (successors,) = group.all("begin")
        check_gone(*begun)
        assert all(map(runs, successors))
    finally:
        group.close()
    check_gone(*successors)


def test_a_worker_that_ends_takes_nothing_of_another_with_it() -> None:
    group = Processes(workers=2).spawn(Parent, 2)
    try:
        workers, begun = group.all("pid"), group.all("begin")
        os.kill(workers[0], signal.SIGKILL)
        check_gone(workers[0])
        group.all("pid")
        check_gone(*begun[0])
        assert all(map(runs, begun[1]))
    finally:
        group.close()
    check_gone(*begun[1])


@pytest.mark.slow
def test_many_workers_that_die_at_once_are_cleaned_up_after_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for what their worlds have left takes a look at every process of the machine."""
    looks = memoryview(mmap.mmap(-1, 4)).cast("i")
    end_marked = orphans.kill_tagged

    def counted(*prefixes: str) -> None:
        looks[0] += 1
        end_marked(*prefixes)

    monkeypatch.setattr(orphans, "kill_tagged", counted)  # in the supervisors too, which are forked from here
    group = Processes(workers=8).spawn(Parent, 8)
    try:
        workers, begun = group.all("pid"), group.all("begin")
        looks[0] = 0
        send(signal.SIGKILL, {*workers})
        check_gone(*workers)
        successors = group.all("pid")
        assert not {*successors} & {*workers}
        check_gone(*(pid for some in begun for pid in some))
        assert 1 <= looks[0] <= 3
    finally:
        group.close()


def test_who_becomes_another_program_meanwhile_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel shows no environment in the middle of exec, which may last while the machine is busy."""
    carries, blind = orphans._has_tag, [True] * 3
    with subprocess.Popen(["sleep", "1000"], env={orphans.MARK: "/nowhere/1/"}, start_new_session=True) as stray:

        def seen(pid: int, words: tuple[bytes, ...]) -> bool | None:
            return None if pid == stray.pid and blind and blind.pop() else carries(pid, words)

        monkeypatch.setattr(orphans, "_has_tag", seen)
        orphans.kill_tagged("/nowhere/")
        try:
            assert stray.wait(PATIENCE_S) == -signal.SIGKILL
        finally:
            stray.kill()
    with subprocess.Popen(["sleep", "1000"], env={}) as bare:
        found = orphans._has_tag(bare.pid, (b"x",))
        bare.kill()
    assert found is None and carries(os.getpid(), (b"x",)) is False


@pytest.mark.slow_cases(but=("killed-", "stopped-the workers"))
@pytest.mark.parametrize(
    "victims", [[], [0], [1], [2, 3]], ids=["", "a supervisor", "the other supervisor", "the workers"]
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_killed_driver_leaves_nothing_of_its_worlds(
    victims: list[int], how: signal.Signals, short_path: Path
) -> None:
    """Also where others are killed at the same moment, or have been stopped."""
    with alone(short_path) as (driver, others):
        send(how, {others[victim] for victim in victims})
        driver.kill()
        check_gone(*others)
        assert not [*short_path.iterdir()]


def test_workers_end_also_where_nobody_is_left_to_end_them(short_path: Path) -> None:
    with alone(short_path) as (driver, others):
        send(signal.SIGKILL, {driver.pid, *others[:2]})
        check_gone(*others[:4])
        send(signal.SIGKILL, {*others})


@contextmanager
def alone(place: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A driver, and the others of its group: two supervisors, two workers, and what their worlds have started."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, cluster_parents.__file__], env=env, text=True, **pipes) as driver:
        assert driver.stdout is not None
        others = [*map(int, driver.stdout.readline().split())]
        assert len(others) == 12 and all(map(runs, others))
        yield driver, others
