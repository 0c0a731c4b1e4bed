"""A feed over many hosts: one copy on each, by the tree, while workers are busy, and through deaths and losses."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
from cluster_toys import Counter
from islands import Islands, worker_pool
from numpy.typing import NDArray

from evorl.cluster.core import Future, Group, MemberLost, Position
from evorl.cluster.transport.broadcast_relay import FAN_OUT, Relay, branches
from evorl.cluster.transport.connection import Connection, Payload, receiver_name
from evorl.cluster.transport.shared_memory import Block, Reader
from evorl.cluster.transport.wire import Kind, ProtocolError
from evorl.cluster.workers import host_tree
from evorl.cluster.workers.calls import Call
from evorl.cluster.workers.feeder import Feeder

HOSTS = ("a", "b", "c", "d", "e", "f")
ROOM = 1_000_000  # numbers
Numbers = NDArray[np.int64]


class Log:
    """A feed: numbers of the driver."""

    def __init__(self, piece: int = ROOM) -> None:
        self.numbers, self.count, self.piece = np.zeros(ROOM, np.int64), 0, piece

    def append(self, size: int) -> int:
        """Append numbers; return the sum of all."""
        self.numbers[self.count : self.count + size] = np.arange(self.count, self.count + size) * 7 + 1
        self.count += size
        return int(self.numbers[: self.count].sum())

    def position(self) -> Position | None:
        return (self.count,) if self.count else None

    def after(self, position: Position | None) -> tuple[Position, object] | None:
        first = position[0] if position else 0
        end = min(first + self.piece, self.count)
        return None if first == end else ((end,), [first, self.numbers[first:end]])


class Copy:
    """The reader of a process."""

    def __init__(self) -> None:
        self.kept: tuple[Block, Numbers] | None = None
        self.count = 0  # numbers that it has got
        self.located: Numbers | None = None
        self.reads_others, self.slow = True, False

    def follow(self, piece: Any) -> int:
        if self.kept is None:
            block = Block()
            self.kept = block, np.frombuffer(block.view(8 * ROOM), np.int64)
        first, numbers = piece
        assert first == self.count  # none is missing or comes twice
        self.count += len(numbers)
        self.kept[1][first : first + len(numbers)] = numbers
        return self.kept[0].fd

    def locate(self, pid: int, fd: int) -> None:
        if not self.reads_others and pid != os.getpid():
            raise OSError("not permitted")
        self.located = np.frombuffer(Reader(pid).view(fd, 8 * ROOM), np.int64)


class Members:
    """Their factory."""

    def __init__(self) -> None:
        self.feed_reader = Copy()

    def __call__(self, index: int) -> Summing:
        return Summing(index, self.feed_reader)


class Summing(Counter):
    def __init__(self, index: int, reader: Copy) -> None:
        super().__init__(index)
        self.reader = reader

    def total(self, count: int) -> int:
        """The sum of the first numbers of the feed."""
        assert self.reader.located is not None
        return int(self.reader.located[:count].sum())

    def slow_total(self, count: int) -> int:
        time.sleep(0.05)
        return self.total(count)

    def slow_down(self, member: int) -> None:
        self.reader.slow = self.index == member

    def read_own_copies_only(self) -> None:
        self.reader.reads_others = False

    def total_and_hash(self, count: int) -> list[int]:
        """With its own state, which is restored when its worker is replaced."""
        return [self.total(count), *self.add(count)]

    def memory(self) -> list[int]:
        """The shared memory that its process has mapped, by inode."""
        with open("/proc/self/maps") as maps:
            return sorted({int(line.split()[4]) for line in maps if "/memfd:evorl" in line})

    def busy(self, seconds: float) -> float:
        time.sleep(seconds)
        return time.monotonic()


@pytest.fixture
def spawn() -> Iterator[Callable[..., tuple[Group, Log]]]:
    groups: list[Group] = []

    def spawned(
        workers: int = 12, hosts: tuple[str, ...] = HOSTS, members: int = 0, piece: int = ROOM, **more: Any
    ) -> tuple[Group, Log]:
        groups.append(Islands(workers=workers, hosts=hosts, **more).spawn(Members(), members or workers))
        log = Log(piece)
        groups[-1].set_feed(log)
        return groups[-1], log

    yield spawned
    for group in groups:
        group.close()


@pytest.fixture
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Avoid that a busy machine causes repeated sends."""
    monkeypatch.setattr(host_tree, "TIMEOUT_S", 60.0)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def keeper_of(group: Group, host: str) -> Any:
    return worker_pool(group).sender.feeder._copies[host].keeper


@pytest.mark.usefixtures("long_timeout")
def test_each_host_gets_one_copy_of_what_is_new(spawn: Callable[..., tuple[Group, Log]]) -> None:
    group, log = spawn(workers=6)
    pool = worker_pool(group)
    assert group.all("echo", 1) == [1] * 6  # nothing to follow yet
    assert pool.sender.sent == pool.inbox.relayed == 0
    for size in (200_000, 100_000, 1):
        sent, relayed = pool.sender.sent, pool.inbox.relayed
        total = log.append(size)
        assert group.all("total", log.count) == [total] * 6
        each = 8 * size
        assert FAN_OUT * each <= pool.sender.sent - sent < FAN_OUT * (each + 500)
        assert (len(HOSTS) - FAN_OUT) * each <= pool.inbox.relayed - relayed < (len(HOSTS) - FAN_OUT) * (each + 500)
        assert group.all("total", log.count) == [total] * 6
        assert pool.sender.sent - sent < FAN_OUT * (each + 500)  # nothing is sent twice


def test_the_processes_of_a_host_read_the_same_memory(spawn: Callable[..., tuple[Group, Log]]) -> None:
    hosts = HOSTS[:3]
    group, log = spawn(workers=6, hosts=hosts)
    log.append(10)
    found = group.all("memory")
    for host in range(len(hosts)):
        of_host = found[host :: len(hosts)]
        assert len(of_host) == 2 and of_host[0] == of_host[1] and len(of_host[0]) == 1
    assert len({inode for one in found for inode in one}) == len(hosts)


@pytest.mark.slow  # the tree has the test above, and pieces that below
@pytest.mark.usefixtures("long_timeout")
def test_hosts_follow_together_and_get_pieces_down_the_tree(spawn: Callable[..., tuple[Group, Log]]) -> None:
    """At first, when a copy takes many pieces; when something is appended before each of many calls; and again after a
    host has begun a new copy meanwhile."""
    group, log = spawn(workers=17, hosts=tuple("abcdefghijklmnop"), piece=5_000)
    pool = worker_pool(group)
    calls, poll = deque[tuple[Future, int]](), pool.poll

    def polled(timeout_s: float) -> None:
        log.append(20)  # so that there is something new whenever a host confirms
        pool.sender.feeder.update()
        poll(timeout_s)

    def steadily(times: int) -> None:
        for _ in range(times):
            total = log.append(250)
            calls.append((group.any("total", log.count), total))
            if len(calls) > 16:
                call, total = calls.popleft()
                assert call.result() == total

    total = log.append(40_000)
    assert group.all("total", log.count) == [total] * 17
    sent, relayed, first, pool.poll = 0, 0, 0, polled
    for what in ("at first", "steadily", "after a death"):
        size = 8 * (log.count - first)
        assert pool.sender.sent - sent < 1.15 * FAN_OUT * size, what
        assert 0.85 * (16 - FAN_OUT) * size < pool.inbox.relayed - relayed < 1.15 * (16 - FAN_OUT) * size, what
        if what == "steadily":
            kill(keeper_of(group, "a").process.pid)
            steadily(100)
        sent, relayed, first = pool.sender.sent, pool.inbox.relayed, log.count
        steadily(200)
    assert [call.result() for call, _ in calls] == [total for _, total in calls]
    assert pool.replaced == 1


@pytest.mark.slow_cases("1")  # more of the same pieces
@pytest.mark.parametrize("piece", [1, 7])
def test_pieces_follow_each_other(spawn: Callable[..., tuple[Group, Log]], piece: int) -> None:
    group, log = spawn(workers=5, hosts=("a", "b", "c"), piece=piece)
    for size in (20, 1, 8):
        total = log.append(size)
        assert group.all("total", log.count) == [total] * 5


@pytest.mark.slow
def test_a_copy_follows_while_its_keeper_works(spawn: Callable[..., tuple[Group, Log]]) -> None:
    """Neither the other worker of its host nor the hosts behind it in the tree wait for its call."""
    group, log = spawn()
    pool = worker_pool(group)
    log.append(1)
    group.all("echo", 1)
    numbers, long = count(10**6), 600.0
    keepers = {keeper_of(group, host).number for host in HOSTS}

    def call(handle: Any, method: str, *args: object) -> Call:
        one = Call(next(numbers), method, handle.members, Payload(args), stateful=False)
        pool.sender.dispatch(handle, [one])
        return one

    working = [call(handle, "busy", long) for handle in pool.handles if handle.number in keepers]
    for size in (50_000, 1, 20):
        total = log.append(size)
        calls = [call(handle, "total", log.count) for handle in pool.handles if handle.number not in keepers]
        for one in calls:
            while one.outcomes is None:
                pool.poll(0.1)
            assert one.outcomes == [(True, total)]
    assert len(working) == len(calls) == len(HOSTS) and all(one.outcomes is None for one in working)


# ------------------------------------------------------------------ deaths


@pytest.mark.slow_cases(but=("sent",))
@pytest.mark.parametrize("moment", ["sent", "confirmed", "shown", "answered"])
def test_no_call_is_lost_when_a_keeper_dies(
    spawn: Callable[..., tuple[Group, Log]], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """While a piece is sent to it, when it has it, when others are to map its copy, or when they have read it."""
    group, log = spawn(workers=6, hosts=("a", "b", "c"))
    pool, struck = worker_pool(group), set[int]()

    def strike(handle: Any) -> None:
        if len(struck) < 6 and handle.process.pid not in struck:
            struck.add(handle.process.pid)
            kill(handle.process.pid)

    def after(method: str, keeper: Callable[..., Any]) -> None:
        whole = getattr(Feeder, method)

        def then(self: Any, *args: Any) -> Any:
            found = whole(self, *args)
            strike(keeper(self, *args))
            return found

        monkeypatch.setattr(Feeder, method, then)

    if moment == "sent":
        after("_send_piece", lambda self, known, position, piece, hosts: [*hosts.values()][-1])
    elif moment == "confirmed":
        after("confirm", lambda self, handle, *held: handle)
    elif moment == "shown":
        show = Feeder.show

        def shows(self: Any, handle: Any) -> None:
            copy, shown = self._copies.get(handle.host), self._mappings.get(handle.number)
            new = copy is not None and copy.fd >= 0 and (shown is None or shown.place != copy.place)
            if new and copy.keeper is not handle:
                strike(copy.keeper)  # before the other can map it
                time.sleep(0.02)
            show(self, handle)

        monkeypatch.setattr(Feeder, "show", shows)
    state = [0] * 6
    for number in range(8):
        total = log.append(5_000)
        state = [one * 31 % 1_000_003 + log.count * (i + 1) for i, one in enumerate(state)]
        assert group.all("total_and_hash", log.count) == [[total, i, one] for i, one in enumerate(state)]
        if moment == "answered" and number % 2:
            strike(keeper_of(group, "b"))
    assert len(struck) >= 3 and pool.replaced >= len(struck) - 1


@pytest.mark.slow
def test_calls_in_flight_read_the_copy_that_they_were_sent_for(spawn: Callable[..., tuple[Group, Log]]) -> None:
    """The keeper dies, and a new copy begins while calls on their way still need what the former one had."""
    group, log = spawn(workers=2, hosts=("a",), members=8, piece=2000)
    total = log.append(900_000)
    assert group.all("total", log.count) == [total] * 8
    stream = group.gather("slow_total", log.count)
    next(stream)
    kill(keeper_of(group, "a").process.pid)
    assert [answer for _, answer in islice(stream, 40)] == [total] * 40


@pytest.mark.slow
def test_hosts_behind_a_dead_keeper_do_not_count_as_unreachable(
    spawn: Callable[..., tuple[Group, Log]], long_timeout: None
) -> None:
    group, log = spawn(workers=24, hosts=tuple("abcdefghijkl"))
    log.append(1)
    group.all("echo", 1)
    pool = worker_pool(group)
    inner, beyond = branches([*pool.sender.tree.receivers()])[0]
    assert beyond
    keeper = keeper_of(group, inner)
    kill(keeper.process.pid, signal.SIGSTOP)  # so that it forwards nothing
    total = log.append(1000)
    calls = [group.any("total", log.count) for _ in range(24)]
    kill(keeper.process.pid)
    assert [call.result() for call in calls] == [total] * 24
    assert not pool.sender.tree._direct_only and pool.replaced == 1


def test_a_worker_that_cannot_map_the_copy_keeps_one_itself(spawn: Callable[..., tuple[Group, Log]]) -> None:
    group, log = spawn(workers=2, hosts=("a",))
    pool = worker_pool(group)
    one = next(handle for handle in pool.handles if handle is not pool.sender.tree.receivers()["a"])
    call = Call(10**6, "read_own_copies_only", one.members, Payload([]), stateful=False)
    pool.sender.dispatch(one, [call])
    while call.outcomes is None:
        pool.poll(0.1)
    for size in (3, 4):
        total = log.append(size)
        assert group.all("total", log.count) == [total] * 2
    assert keeper_of(group, "a") is one and pool.replaced == 0


def test_workers_of_a_host_that_cannot_map_each_other_s_memory_end_the_group(
    spawn: Callable[..., tuple[Group, Log]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Copy.__init__

    def makes(self: Copy) -> None:
        made(self)
        self.reads_others = False

    monkeypatch.setattr(Copy, "__init__", makes)
    group, log = spawn(workers=2, hosts=("a",))
    log.append(3)
    with pytest.raises(MemberLost, match="cannot map each other's memory"):
        for _ in range(100):
            group.all("total", log.count)


def test_a_slow_host_delays_others_once(
    spawn: Callable[..., tuple[Group, Log]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then they do not wait for it until it is in time again."""
    monkeypatch.setattr(host_tree, "TIMEOUT_S", 0.3)
    follow, parent = Copy.follow, os.getpid()

    def follows(self: Copy, piece: Any) -> int:
        time.sleep(0.5 if self.slow and os.getpid() != parent else 0.0)
        return follow(self, piece)

    monkeypatch.setattr(Copy, "follow", follows)
    group, log = spawn(workers=2, hosts=("a", "b"))
    pool = worker_pool(group)
    log.append(1)
    group.all("slow_down", 1)  # member 1, on host b
    numbers, times = count(10**6), list[float]()
    for _ in range(12):
        total = log.append(1)
        call = Call(next(numbers), "total", [0], Payload([log.count]), stateful=False)
        began = time.monotonic()
        pool.sender.dispatch(pool.handles[0], [call])
        while call.outcomes is None:
            pool.poll(0.01)
        times.append(time.monotonic() - began)
        assert call.outcomes == [(True, total)]
    assert sum(one > 0.15 for one in times) <= 3


def test_members_that_are_made_again_read_the_same_copy(spawn: Callable[..., tuple[Group, Log]]) -> None:
    group, log = spawn(workers=3, hosts=("a",))
    for size in (5, 7, 9):
        total = log.append(size)
        assert group.all("total", log.count) == [total] * 3
        keeper = keeper_of(group, "a")
        group.restore(group.states())
        assert group.all("total", log.count) == [total] * 3
        assert keeper_of(group, "a") is keeper and len({inode for one in group.all("memory") for inode in one}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [30, pytest.param(500, marks=pytest.mark.fault)])
def test_random_kills_change_no_answer(spawn: Callable[..., tuple[Group, Log]], rounds: int) -> None:
    (group, log), draw = spawn(piece=200_000), random.Random(rounds)
    pool = worker_pool(group)
    poll = pool.poll

    def polled(timeout_s: float) -> None:
        if draw.random() < 0.1:
            kill(draw.choice([handle.process.pid for handle in pool.handles if handle.process.pid]))
        poll(timeout_s)

    pool.poll = polled
    for _ in range(rounds):
        total = log.append(draw.choice([1, 1000, 1999]))
        calls = [group.any("total", log.count) for _ in range(12)]
        assert [one.result() for one in calls] == [total] * 12
    assert pool.replaced > rounds // 30


@pytest.mark.slow_cases(but=("beside another",))
@pytest.mark.parametrize("worker", ["alone", "beside another", "not the keeper"])
def test_a_receiver_that_hangs_is_replaced_with_its_worker(
    spawn: Callable[..., tuple[Group, Log]], worker: str
) -> None:
    """Also if its worker has no call, so that only the receiver is waited for."""
    group, log = spawn(workers=1 if worker == "alone" else 3, hosts=("a",), deadline_s=1.5)
    pool = worker_pool(group)
    if worker == "not the keeper":
        stopped = next(handle for handle in pool.handles if handle is not pool.sender.tree.receivers()["a"])
    else:
        log.append(1)
        group.all("echo", 1)
        stopped = keeper_of(group, "a")
    kill(stopped.process.pid, signal.SIGSTOP)
    total = log.append(5)
    assert [group.any("total", log.count).result() for _ in range(4)] == [total] * 4
    assert worker_pool(group).replaced == 1


# ------------------------------------------------------------------ losses


@pytest.mark.slow
def test_hosts_that_others_cannot_reach_get_it_from_the_driver(
    spawn: Callable[..., tuple[Group, Log]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Relay, "forward", lambda *_: None)  # in the workers, which are forked from here
    group, log = spawn()
    total = log.append(1000)
    assert group.all("total", log.count) == [total] * 12
    assert caplog.text.count("sent to directly") == 1
    monkeypatch.setattr(host_tree, "TIMEOUT_S", 60.0)
    pool = worker_pool(group)
    sent, total = pool.sender.sent, log.append(1000)
    assert group.all("total", log.count) == [total] * 12
    assert len(HOSTS) * 8000 <= pool.sender.sent - sent < len(HOSTS) * 8500 and pool.inbox.relayed == 0


def test_lost_and_late_pieces(spawn: Callable[..., tuple[Group, Log]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are not forwarded, and some only after the driver has sent them again."""
    forward, draw = Relay.forward, random.Random(1)

    def forwards(self: Relay, broadcast: Any) -> None:
        chance = draw.random()
        if chance > 1 / 3:
            time.sleep(0.0 if chance > 2 / 3 else 0.15)
            forward(self, broadcast)

    monkeypatch.setattr(Relay, "forward", forwards)  # in the workers, which are forked from here
    monkeypatch.setattr(host_tree, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(host_tree.HostTree, "mark_late", lambda *_: None)  # the tree is used again
    lose, late = Feeder._lose, list[set[str]]()

    def loses(self: Feeder, piece: Any, hosts: set[str]) -> None:
        late.extend([hosts] if hosts else [])
        lose(self, piece, hosts)

    monkeypatch.setattr(Feeder, "_lose", loses)
    group, log = spawn(workers=6, piece=400)
    for _ in range(6):
        total = log.append(1000)
        assert group.all("total", log.count) == [total] * 6
    assert len(late) > 3 and worker_pool(group).inbox.relayed > 0 and worker_pool(group).replaced == 0


def test_what_a_receiver_may_not_say_is_refused(spawn: Callable[..., tuple[Group, Log]]) -> None:
    group, log = spawn(workers=2, hosts=("a", "b"))
    pool = worker_pool(group)
    total = log.append(10)
    assert group.all("total", log.count) == [total] * 2
    handle, refused = pool.handles[0], pool.refused
    hostile = [
        (Kind.FOLLOWED, [1, [11], 5]),  # more than there is
        (Kind.FOLLOWED, [1, [3, 4], 5]),
        (Kind.FOLLOWED, [1, [-3], 5]),
        (Kind.FOLLOWED, [1, [5], -2]),
        (Kind.FOLLOWED, [1, "x", 5]),
        (Kind.LOCATED, [1, 2]),
        (Kind.STORED, [1, -1, 0]),
        (Kind.ANSWER, [1, []]),
        (Kind.RECEIVING, None),
    ]
    for kind, content in hostile:
        connection = Connection(pool._token, 0, 0)
        connection.sent = handle.process.receiver.received
        with pytest.raises(ProtocolError):
            pool.inbox._handle(receiver_name(0, 0), connection.pack(kind, content, Payload(None)))
    assert pool.refused == refused
    total = log.append(10)
    assert group.all("total", log.count) == [total] * 2
