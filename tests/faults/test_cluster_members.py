"""Members of `cluster=processes` that die or hang: who they were, what comes out, and that their group goes on."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from cluster_victims import WAYS, Victim, lives
from harness import Alone, Faulty, train_in

from evorl.cli import config
from evorl.cluster.core import MemberLost
from evorl.cluster.processes import Processes, launcher
from evorl.cluster.workers.group import RemoteGroup
from evorl.mdp.core import Array, State, Step
from evorl.rl.ppo import PPO
from evorl.training.experiment import Experiment

Spawn = Callable[..., RemoteGroup]
MEMBERS = 3
DEADLINE_S = 1.0


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """A group of `Victim`s, whose member 1 dies ``times`` times."""
    groups: list[RemoteGroup] = []

    def spawned(
        way: str = "exits", where: str = "add", times: int = 0, workers: int = 2, size: int = MEMBERS
    ) -> RemoteGroup:
        place = lives(tmp_path / f"{way} {where} {times}", times)
        group = Processes(workers=workers, deadline_s=DEADLINE_S).spawn(partial(Victim, place, way, where), size)
        assert isinstance(group, RemoteGroup)
        groups.append(group)
        return group

    yield spawned
    for group in groups:
        group.close()


def sums(x: int) -> list[int]:
    return [x * (i + 1) for i in range(MEMBERS)]


# ------------------------------------------------------------------ by their own doing


@pytest.mark.slow_cases(but=("loops", "is stopped"))
@pytest.mark.parametrize("way", WAYS)
def test_who_dies_once_is_replaced_once_and_nothing_is_lost(way: str, spawn: Spawn) -> None:
    group = spawn(way, "add", times=1)
    assert group.all("add", 5) == sums(5)
    assert group.all("add", 6) == sums(11)
    assert [state["sum"] for state in group.states()] == sums(11)
    assert group.pool.replaced == 1


ENDS = {
    "exits": "left with exit code 3",
    "leaves": "left with exit code 1",
    "segfaults": "was killed by SIGSEGV",
    "aborts": "was killed by SIGABRT",
    "exhausts its memory": "left with exit code 1",
    "loops": f"gave no sign for {DEADLINE_S:g} s",
}
STACKS = {  # where it happened, innermost call first; of exceptions, their tracebacks
    "segfaults": "in string_at",
    "aborts": "in _pass",
    "loops": "in spin",
    "leaves": "SystemExit: 4",
    "exhausts its memory": "MemoryError",
}


@pytest.mark.slow_cases(but=("segfaults",))
@pytest.mark.parametrize("way", ENDS)
def test_who_dies_again_and_again_ends_the_group_and_is_named(way: str, spawn: Spawn) -> None:
    group = spawn(way, "add", times=10)
    with pytest.raises(MemberLost) as caught:
        group.all("add", 5)
    first, _, stack = str(caught.value).partition("\n")
    assert first == f"worker 1, busy with member 1, {ENDS[way]} as add ran, 3 times over the same work"
    assert STACKS.get(way, "") in stack


@pytest.mark.parametrize("where", ["make", "load", "ask", "fail"])
def test_a_death_is_mended_wherever_it_happens(where: str, spawn: Spawn) -> None:
    group = spawn("segfaults", where, times=1)
    group.all("add", 5)
    group.restore([{"sum": 7}] * MEMBERS)
    assert [*group.map("ask", ((i,) for i in range(200)))] == [i * i for i in range(200)]
    with pytest.raises(RuntimeError, match="the roof fell in"):
        group.all("fail")
    assert group.all("add", 1) == [8, 9, 10]
    assert group.pool.replaced == 1


def test_who_cannot_be_made_or_restored_ends_the_group(spawn: Spawn) -> None:
    with pytest.raises(MemberLost, match="worker 1, busy with member 1, was killed by SIGABRT as it began, 3 times"):
        spawn("aborts", "make", times=10)
    group = spawn("exits", "load", times=10)
    with pytest.raises(MemberLost, match="left with exit code 3 as it began, 3 times"):
        group.restore([{"sum": 0}] * MEMBERS)


def test_a_stream_goes_on_where_a_death_broke_it(spawn: Spawn) -> None:
    group = spawn("segfaults", "add", times=2)
    heard: list[list[int]] = [[] for _ in range(MEMBERS)]
    for member, answer in group.gather("add", 1):
        heard[member].append(answer)
        if min(map(len, heard)) > 50:
            break
    assert all(answers == [n * (i + 1) for n in range(1, len(answers) + 1)] for i, answers in enumerate(heard))
    assert group.pool.replaced == 2


# ------------------------------------------------------------------ deadlines


@pytest.mark.slow
def test_who_is_slow_but_lives_is_left_alone(spawn: Spawn) -> None:
    """Each takes half of the deadline, all of a worker together much more than it, again and again."""
    group = spawn(workers=1)
    for _ in range(3):
        assert group.all("nap", 0.5 * DEADLINE_S) == [0, 1, 2]
    assert group.pool.replaced == 0


@pytest.mark.slow
def test_a_driver_that_was_busy_kills_nobody_who_has_answered(spawn: Spawn) -> None:
    group = spawn()
    pending = [group.any("ask", i) for i in range(10)]
    ends = time.monotonic() + 1.5 * DEADLINE_S
    while time.monotonic() < ends:
        pass
    assert [one.result() for one in pending] == [i * i for i in range(10)]
    assert group.pool.replaced == 0


@pytest.mark.slow
def test_a_busy_driver_still_finds_who_hangs(spawn: Spawn) -> None:
    """Work of the driver's own between two looks is no excuse for a worker."""
    group = spawn("is stopped", "add", times=1)
    group.pool.heartbeats.deadline_s = 0.5
    began = time.monotonic()
    stream = group.gather("add", 1)
    while not group.pool.replaced:
        next(stream)
        ends = time.process_time() + 0.6
        while time.process_time() < ends:
            pass
        assert time.monotonic() - began < 30 * DEADLINE_S


# ------------------------------------------------------------------ supervisors


def supervisors(group: RemoteGroup) -> list[int]:
    return [one.pid.number for one in group.pool.launcher._supervisors]


def test_supervisors_are_replaced_whoever_of_them_is_killed(spawn: Spawn) -> None:
    group = spawn()
    for number, victims in enumerate([[0], [1], [0], [0, 1], [1, 0], [0]]):
        killed = [supervisors(group)[victim] for victim in victims]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert group.all("add", 1) == sums(number + 1)
        while set(killed) & set(supervisors(group)):
            group.poll(0.01)
        assert len(supervisors(group)) == 2


def test_a_stopped_nurse_is_replaced_when_it_is_needed(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "ANSWER_S", 0.5)
    group = spawn()
    for pid in supervisors(group):
        os.kill(pid, signal.SIGSTOP)
    os.kill(group.all("pid")[1], signal.SIGKILL)
    assert group.all("add", 3) == sums(3)


@pytest.mark.slow
def test_a_driver_may_have_many_files_open(spawn: Spawn) -> None:
    """As many as hundreds of workers make; `select.select` takes none whose number is 1024 or more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        group = spawn()
        for number in (1, 2):
            for pid in supervisors(group):
                os.kill(pid, signal.SIGKILL)
            assert group.all("add", 1) == sums(number)
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def summed(threads: int) -> float:
    torch.set_num_threads(threads)
    return float(torch.exp(torch.zeros(1 << 20)).sum())


class Threaded:
    """Computes on several threads; its first process was forked while those of its parent were at work."""

    def __init__(self, index: int) -> None:
        pass

    def sum(self) -> float:
        return summed(2)


def test_a_driver_with_threads_of_its_own_forks_workers_that_compute() -> None:
    """libgomp's threads do not survive a fork, and it waits for them: who is forked must not inherit any."""
    before = torch.get_num_threads()
    try:
        expected = summed(2)
        group = Processes(workers=2, deadline_s=20).spawn(Threaded, 2)
        assert isinstance(group, RemoteGroup)
        try:
            for _ in range(3):
                assert group.all("sum") == [expected] * 2
                for pid in supervisors(group):
                    os.kill(pid, signal.SIGKILL)
            assert group.all("sum") == [expected] * 2
            assert not any("gave no sign" in gone.why for gone in group.pool.launcher.exits())
        finally:
            group.close()
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------ many groups


@pytest.mark.slow
def test_many_groups_at_once_do_not_meet() -> None:
    def one(number: int) -> list[int]:
        group = Processes(workers=1).spawn(partial(Victim, Path("/nowhere"), "exits", "never"), 2)
        try:
            return [*map(sum, zip(*[group.all("add", number) for _ in range(20)], strict=True))]
        finally:
            group.close()

    with ThreadPoolExecutor(16) as several:
        found = [*several.map(one, range(16))]
    assert found == [[210 * n, 420 * n] for n in range(16)]


# ------------------------------------------------------------------ whole runs


class Deadly(Faulty):
    """Brings down its process at decision ``at`` of every episode."""

    def reset(self, *players: int, seed: int) -> Alone:
        return Alone(_DeadlySide(self.at))


class _DeadlySide:
    def __init__(self, at: int) -> None:
        self.at, self.t = at, 0

    @property
    def state(self) -> State:
        return State((np.array([0.5, self.t / 100], np.float32),))

    async def __call__(self, action: Array) -> Step:
        self.t += 1
        if self.t == self.at:
            WAYS["segfaults"]()
        return Step(np.ones(1, np.float32), terminated=False)

    def result(self) -> dict[str, float]:
        return {}


def experiment(world: Faulty) -> Experiment:
    return Experiment(
        mdp=world, rl=PPO(members=3, slots=2, horizon=8, minibatch=16), cluster=Processes(workers=2, deadline_s=30)
    )


def test_a_run_of_a_world_that_segfaults_says_which_member_where_and_how_often(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert config.exit_code(lambda: train_in(tmp_path / "run", experiment(Deadly(at=40)))) == 1
    said = capfd.readouterr()
    first = said.err.splitlines()[0]
    assert first.startswith("evorl: MemberLost: worker ") and "was killed by SIGSEGV as collect ran, 3 times" in first
    assert "busy with member" in first and "in __call__" in said.err
    assert said.out.count("replaced") >= 2


@pytest.mark.slow
def test_a_run_of_a_world_that_raises_shows_its_own_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert config.exit_code(lambda: train_in(tmp_path / "run", experiment(Faulty(fault="crash", at=40)))) == 1
    said = capfd.readouterr().err
    assert said.splitlines()[0] == "evorl: RuntimeError: the roof fell in at decision 40"
    assert "RuntimeError: the roof fell in at decision 40" in said and "in __call__" in said
    assert "raised by member" in said
