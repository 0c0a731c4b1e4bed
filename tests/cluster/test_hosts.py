"""Broadcasts to many hosts: one copy to each, none of stored arrays, and no loss when workers die."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import cluster_toys as toys
import msgspec
import numpy as np
import pytest
import torch
import zmq
from harness import QUICK, WORLDS, experiment_of, fingerprint, train_in
from islands import Islands, worker_pool

from evorl.cluster.core import Group
from evorl.cluster.transport.authentication import present_token
from evorl.cluster.transport.broadcast_relay import FAN_OUT, Broadcast, Relay, Route, branches, sign, signed_routes
from evorl.cluster.transport.connection import digest
from evorl.cluster.transport.curve import Credentials
from evorl.cluster.transport.wire import PIECE, Bulk, Header, Kind
from evorl.cluster.workers import broadcast, host_tree
from evorl.cluster.workers.broadcast import MAX_STORED

torch.set_num_threads(1)
HOSTS = ("a", "b", "c", "d", "e", "f")
LARGE = 10_000_000  # bytes
SMALL = 10_000


@pytest.fixture
def spawn() -> Iterator[Callable[..., Group]]:
    groups: list[Group] = []

    def spawned(make: Any = toys.Counter, workers: int = 12, hosts: tuple[str, ...] = HOSTS, **more: Any) -> Group:
        groups.append(Islands(workers=workers, hosts=hosts, **more).spawn(make, workers))
        return groups[-1]

    yield spawned
    for group in groups:
        group.close()


def sent(group: Group) -> Callable[[], tuple[int, int]]:
    """Return a function for the bytes of arrays sent to other hosts since its last call: by driver, by workers."""
    former = [0, 0]

    def news() -> tuple[int, int]:
        now = [worker_pool(group).sender.sent, worker_pool(group).inbox.relayed]
        found = now[0] - former[0], now[1] - former[1]
        former[:] = now
        return found

    return news


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


# ------------------------------------------------------------------ bytes sent


@pytest.fixture
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Avoid that a busy machine causes repeated sends."""
    monkeypatch.setattr(host_tree, "TIMEOUT_S", 60.0)


@pytest.mark.slow
@pytest.mark.usefixtures("long_timeout")
def test_each_host_gets_one_copy_and_few_hosts_from_the_driver(spawn: Callable[..., Group]) -> None:
    group = spawn()
    news, array = sent(group), np.arange(LARGE // 8)
    assert group.all("digest", array) == [toys.digest(array)] * 12
    size = -(-LARGE // 64) * 64
    driver, workers = news()
    assert driver == FAN_OUT * size and workers == (len(HOSTS) - FAN_OUT) * size


@pytest.mark.slow
@pytest.mark.usefixtures("long_timeout")
def test_stored_arrays_are_not_sent_again(spawn: Callable[..., Group]) -> None:
    group = spawn()
    news, array = sent(group), np.arange(LARGE // 8)
    for change in range(3):
        array[change] = -1
        for again in range(3):
            assert group.all("digest", array.copy(), again) == [toys.digest(array)] * 12
            total = sum(news())
            assert total < SMALL if again else total >= len(HOSTS) * LARGE
    array[2] = 2  # as it was before the last change
    assert group.all("digest", array) == [toys.digest(array)] * 12
    assert sum(news()) < SMALL


@pytest.mark.usefixtures("long_timeout")
def test_hosts_store_the_latest_broadcasts(spawn: Callable[..., Group]) -> None:
    group = spawn(workers=4, hosts=("a", "b"))
    news = sent(group)
    arrays = [np.full(100_000, n) for n in range(MAX_STORED + 3)]
    for _ in range(4):
        for array in arrays:
            assert group.all("digest", array) == [toys.digest(array)] * 4
    assert sum(news()) >= 4 * len(arrays) * 2 * 800_000
    assert group.all("digest", arrays[-MAX_STORED]) and sum(news()) == 0
    assert len(worker_pool(group).sender.block_pool.blocks) <= MAX_STORED + 2
    assert max(group.all("blocks")) <= MAX_STORED + 2


@pytest.mark.usefixtures("long_timeout")
def test_a_replaced_receiver_gets_its_broadcast_again(spawn: Callable[..., Group]) -> None:
    group = spawn(workers=4, hosts=("a", "b"))
    news, array = sent(group), np.arange(LARGE // 8)
    pids = group.all("pid", array)
    receiver = worker_pool(group).sender.tree.receivers()["a"].number
    news()
    kill(pids[2 - receiver])  # the other worker of host a: its successor reads the broadcast stored on its host
    while worker_pool(group).replaced < 1:
        assert group.all("digest", array) == [toys.digest(array)] * 4
    assert sum(news()) < SMALL
    kill(pids[receiver])  # host a's broadcasts are lost with it
    while worker_pool(group).replaced < 2:
        assert group.all("digest", array) == [toys.digest(array)] * 4
    assert group.all("digest", array) == [toys.digest(array)] * 4
    assert LARGE <= sum(news()) < 4 * LARGE


def test_calls_to_one_member_and_small_arrays_are_not_broadcast(spawn: Callable[..., Group]) -> None:
    group = spawn(workers=2, hosts=("a", "b"))
    news, array = sent(group), np.arange(LARGE // 8)
    assert group.any("digest", array).result() == toys.digest(array)
    assert news() == (-(-LARGE // 64) * 64, 0)
    assert group.all("digest", array[:100]) == [toys.digest(array[:100])] * 2
    assert news()[0] < SMALL


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 20, 21, 94, 1000])
def test_a_tree_reaches_every_host_once(count: int) -> None:
    def reached(places: Sequence[int], depth: int) -> Iterator[tuple[int, int]]:
        found = branches(places)
        assert len(found) <= FAN_OUT
        for place, beyond in found:
            yield place, depth
            yield from reached(beyond, depth + 1)

    found = [*reached(range(count), 1)]
    assert sorted(worker for worker, _ in found) == [*range(count)]
    levels = max((depth for _, depth in found), default=0)
    assert levels == 0 or count > sum(FAN_OUT**level for level in range(1, levels))  # no more levels than needed


# ------------------------------------------------------------------ failures during a broadcast


@pytest.mark.slow_cases(but=("sent",))
@pytest.mark.parametrize("moment", ["sent", "kept"])
def test_no_call_is_lost_when_a_relay_dies(
    spawn: Callable[..., Group], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It is killed while a broadcast is sent to it, or after it has confirmed one that no worker has read yet."""
    group = spawn()
    kept, shipped = broadcast.Broadcaster.confirm, broadcast.Broadcaster.broadcast
    struck: set[int] = set()

    def strike(handle: Any) -> None:
        if len(struck) < 3:
            struck.add(handle.process.pid)
            kill(handle.process.pid)

    def ship(self: Any, payload: Any) -> None:
        shipped(self, payload)
        for receiver in [*self._tree.receivers().values()][:1] if moment == "sent" else []:
            strike(receiver)

    def confirmed(self: Any, handle: Any, *place: int) -> None:
        kept(self, handle, *place)
        if moment == "kept":
            strike(handle)

    monkeypatch.setattr(broadcast.Broadcaster, "broadcast", ship)
    monkeypatch.setattr(broadcast.Broadcaster, "confirm", confirmed)
    sums = [0] * 12
    for n in range(6):
        array = np.full(LARGE // 80, n)
        assert group.all("digest", array) == [toys.digest(array)] * 12
        sums = [one * 31 % 1_000_003 + n * (i + 1) for i, one in enumerate(sums)]
        assert group.all("add", n) == [[i, one] for i, one in enumerate(sums)]
    assert len(struck) == 3 and worker_pool(group).replaced >= 3


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [30, pytest.param(500, marks=pytest.mark.fault)])
def test_random_kills_change_no_answer(spawn: Callable[..., Group], rounds: int) -> None:
    group, draw = spawn(), random.Random(rounds)
    poll = worker_pool(group).poll

    def polled(timeout_s: float) -> None:
        if draw.random() < 0.1:
            kill(draw.choice([handle.process.pid for handle in worker_pool(group).handles if handle.process.pid]))
        poll(timeout_s)

    worker_pool(group).poll = polled
    sums = [0] * 12
    for n in range(rounds):
        array = np.full(60_000, n // 3)
        sums = [one * 31 % 1_000_003 + int(array.sum()) * (i + 1) for i, one in enumerate(sums)]
        assert group.all("add_all", array) == sums
    assert worker_pool(group).replaced > rounds // 30


@pytest.mark.fault
def test_a_relay_that_hangs_does_not_block_others(spawn: Callable[..., Group]) -> None:
    group = spawn(deadline_s=4.0)
    group.all("digest", np.zeros(LARGE // 80))
    (stopped,) = [*worker_pool(group).sender.tree.receivers().values()][:1]
    kill(stopped.process.pid, signal.SIGSTOP)
    array = np.ones(LARGE // 80)
    assert group.all("digest", array) == [toys.digest(array)] * 12
    assert worker_pool(group).replaced == 1  # the hung worker, and none of those behind it in the tree


@pytest.mark.slow
def test_the_driver_sends_directly_to_hosts_that_others_cannot_reach(
    spawn: Callable[..., Group], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Relay, "forward", lambda *_: None)  # in the workers, which are forked from here
    group = spawn()
    news, arrays = sent(group), (np.full(LARGE // 80, n) for n in count())
    while len(worker_pool(group).sender.tree._direct_only) < len(HOSTS) - FAN_OUT:
        assert group.all("digest", array := next(arrays)) == [toys.digest(array)] * 12
    assert caplog.text.count("sent to directly") == 1
    monkeypatch.setattr(host_tree, "TIMEOUT_S", 60.0)
    news()
    assert group.all("digest", array := next(arrays)) == [toys.digest(array)] * 12
    assert news() == (len(HOSTS) * LARGE // 10, 0)


@pytest.mark.usefixtures("long_timeout")
def test_hosts_connect_over_ipv6(spawn: Callable[..., Group]) -> None:
    group = spawn(workers=len(HOSTS), ip="::1")
    news, array = sent(group), np.arange(LARGE // 80)
    assert group.all("digest", array) == [toys.digest(array)] * len(HOSTS)
    assert all(handle.process.relay.endpoint.startswith("tcp://[::1]:") for handle in worker_pool(group).handles)
    assert news()[1] == (len(HOSTS) - FAN_OUT) * LARGE // 10


def test_runs_on_many_hosts_equal_local_runs_bit_for_bit(tmp_path: Any) -> None:
    words = (*QUICK, *WORLDS["pong"], "rl.members=5", "rl.net.hidden=[128,64]", "budget.steps=3000")
    experiment = experiment_of(*words)
    train_in(tmp_path / "local", experiment)
    train_in(tmp_path / "hosts", replace(experiment, cluster=Islands(workers=5, hosts=HOSTS[:3])))
    assert fingerprint(tmp_path / "local") == fingerprint(tmp_path / "hosts")


# ------------------------------------------------------------------ foreign connections


def test_foreign_connections_to_a_relay_are_refused(spawn: Callable[..., Group]) -> None:
    group = spawn(workers=2, hosts=("a", "b"))
    handle, keys, token = (
        worker_pool(group).handles[0],
        worker_pool(group).launcher.lives[0][3],
        worker_pool(group)._token,
    )
    context = zmq.Context()
    theirs = Credentials(handle.process.relay.key.encode(), keys.relay_public, keys.relay_secret)
    envelope, unsealed = (
        msgspec.msgpack.encode((77, seal(secret, 77, 77), [])) for secret in (handle.process.secret, bytes(16))
    )
    header = Header(Kind.BROADCAST, token, 0, 0, 77, Bulk.FRAME, 8, len(envelope))
    good = [header.pack(), envelope, b"", b"x" * 8]
    other = msgspec.msgpack.encode([77, b"", [1, 2, 3, 4]])
    hostile = [
        [], good[:3], [*good, b""], [b"", *good[1:]], [good[0], b"\xc1", *good[2:]], [*good[:3], b"x" * 9],
        [header._replace(kind=Kind.CALL).pack(), *good[1:]], [header._replace(worker=1).pack(), *good[1:]],
        [header._replace(token=bytes(16)).pack(), *good[1:]], [header._replace(bulk=Bulk.HELD).pack(), *good[1:]],
        [header._replace(envelope=len(other)).pack(), other, *good[2:]], [good[0], unsealed, *good[2:]],
        [header._replace(kind=Kind.FOLLOW).pack(), *good[1:]], [*good[:3], b"evil" * 2],
    ]  # fmt: skip
    strangers: list[zmq.Socket[bytes]] = []
    try:
        for mechanisms, least, most in (
            (["valid"], len(hostile) + 1, len(hostile) + 1),  # messages, and the repeated one
            (["driver's", "another's", "none", "token"], 2, 4),  # a peer without any key may disconnect by itself
        ):
            refused, ends = worker_pool(group).refused, time.monotonic() + 60
            for mechanism in mechanisms:
                strangers.append(socket := context.socket(zmq.PUSH))
                socket.linger, socket.reconnect_ivl = 0, -1  # each tries once
                if mechanism == "token":
                    present_token(socket, token)
                elif mechanism == "driver's":
                    Credentials(handle.process.relay.key.encode(), keys.public, keys.secret).apply_to(socket)
                elif mechanism == "another's":
                    Credentials(handle.process.relay.key.encode(), *zmq.curve_keypair()).apply_to(socket)
                elif mechanism == "valid":
                    theirs.apply_to(socket)
                socket.connect(handle.process.relay.endpoint)
                for message in [*hostile, good, good] if mechanism == "valid" else [good]:
                    with suppress(zmq.Again):  # refused already
                        socket.send_multipart(message or [b""], zmq.NOBLOCK)
            while worker_pool(group).refused < refused + least and time.monotonic() < ends:
                assert group.all("echo", 1) == [1] * 2  # without a broadcast
            assert least <= worker_pool(group).refused - refused <= most
        assert max(group.all("blocks")) <= MAX_STORED + 2  # no worker stores a foreign broadcast
    finally:
        for socket in strangers:
            socket.close()
        context.term()


# ------------------------------------------------------------------ replayed and misdirected broadcasts


@pytest.fixture
def make_relay() -> Iterator[Callable[..., Relay]]:
    """Make relays of one run in this process, by worker and life."""
    made: list[tuple[Relay, zmq.Context[Any]]] = []
    server, between = zmq.curve_keypair(), zmq.curve_keypair()

    def relay(worker: int, life: int = 0) -> Relay:
        context = zmq.Context()
        keys = Credentials(server[0], *zmq.curve_keypair(), *between)
        made.append((Relay(context, "tcp://127.0.0.1:9", bytes(16), (worker, life), keys), context))
        return made[-1][0]

    yield relay
    for one, context in made:
        one.close()
        context.destroy(linger=0)


def seal(
    secret: bytes,
    send_number: int,
    number: int,
    kind: Kind = Kind.BROADCAST,
    content: bytes = b"x" * 8,
    routes: Sequence[Route] = (),
) -> bytes:
    """Return the driver's signature of the broadcast that `forward` sends, or of another one."""
    return sign(secret, Broadcast(kind, number, send_number, [*routes], []), digest([content]))


def forward(former: Relay, to: Relay, send_number: int, number: int, signature: bytes) -> None:
    while not former.new_counts()[1]:  # its former send may not be finished
        former.forward(Broadcast(Kind.BROADCAST, number, send_number, [Route(to.address, signature)], [b"x" * 8]))


def forward_and_receive(former: Relay, to: Relay, send_number: int, number: int, signature: bytes) -> Broadcast | None:
    """Forward a broadcast from one relay to the other; return it if it is accepted."""
    forward(former, to, send_number, number, signature)
    ends = time.monotonic() + 10.0
    while (found := to.receive()) is None and (refused := to.new_counts()[0]) == 0:
        assert time.monotonic() < ends
    assert found is not None or refused == 1
    return found


def test_each_broadcast_is_accepted_once_and_only_if_signed_by_the_driver(make_relay: Callable[..., Relay]) -> None:
    former, taker, other = make_relay(0), make_relay(1), make_relay(2)
    for send_number in (3, 4, 9):
        taken = forward_and_receive(former, taker, send_number, 5, seal(taker.secret, send_number, 5))
        assert taken is not None and (taken.number, taken.send_number, b"".join(taken.content)) == (
            5,
            send_number,
            b"x" * 8,
        )
    assert forward_and_receive(former, taker, 9, 5, seal(taker.secret, 9, 5)) is None  # replayed
    assert (
        forward_and_receive(former, taker, 10, 5, seal(taker.secret, 9, 5)) is None
    )  # an old signature for a new send number
    assert forward_and_receive(former, taker, 10, 6, seal(taker.secret, 10, 5)) is None  # for another broadcast
    assert forward_and_receive(former, taker, 10, 5, seal(other.secret, 10, 5)) is None  # for another worker
    assert (
        forward_and_receive(former, taker, 10, 5, seal(taker.secret, 10, 5)) is not None
    )  # all this did not block a valid one
    assert (
        forward_and_receive(former, make_relay(1, life=1), 11, 5, seal(taker.secret, 11, 5)) is None
    )  # for the worker's former process


def test_an_overtaken_broadcast_is_dropped_but_not_counted(make_relay: Callable[..., Relay]) -> None:
    """A relay on its path was only slow."""
    former, taker = make_relay(0), make_relay(1)
    assert forward_and_receive(former, taker, 6, 5, seal(taker.secret, 6, 5)) is not None
    forward(former, taker, 5, 5, seal(taker.secret, 5, 5))
    taken = forward_and_receive(former, taker, 7, 5, seal(taker.secret, 7, 5))
    assert taken is not None and taken.send_number == 7 and taker.new_counts()[0] == 0
    assert (
        forward_and_receive(former, taker, 6, 5, seal(bytes(16), 6, 5)) is None
    )  # old and not signed by the driver: counted


def test_a_signature_covers_kind_content_and_routes(make_relay: Callable[..., Relay]) -> None:
    former, taker, other = make_relay(0), make_relay(1), make_relay(2)
    onwards = [Route(other.address, bytes(32))]
    for wrong in (
        seal(taker.secret, 9, 5, Kind.FOLLOW), seal(taker.secret, 9, 5, content=b"y" * 8),
        seal(taker.secret, 9, 5, content=b"x" * 9), seal(taker.secret, 9, 5, routes=onwards),
    ):  # fmt: skip
        assert forward_and_receive(former, taker, 9, 5, wrong) is None
    assert forward_and_receive(former, taker, 9, 5, seal(taker.secret, 9, 5)) is not None


@pytest.mark.parametrize("size", [8, PIECE, 3 * PIECE + 5])
def test_a_broadcast_goes_down_the_tree_as_it_was_signed(make_relay: Callable[..., Relay], size: int) -> None:
    """Through three relays one behind the other, of which the last gets the pieces that the first one cut."""
    relays, content = [make_relay(worker) for worker in range(7)], bytes(range(256)) * (size // 256) + bytes(size % 256)
    sent = Broadcast(Kind.FOLLOW, 0, 3, [], [content])
    routes = signed_routes(sent, digest([content]), [(one.address, one.secret) for one in relays[1:]])
    assert [route.relay for route in routes] == [one.address for one in relays[1:]]
    relays[0].forward(sent._replace(routes=routes))
    received, ends = set[int](), time.monotonic() + 10.0
    while received != {1, 2, 3, 4, 5, 6}:
        assert time.monotonic() < ends
        for number, one in enumerate(relays[1:], 1):
            if (taken := one.receive()) is not None:
                assert b"".join(taken.content) == content and max(map(len, taken.content)) <= PIECE
                one.forward(taken)
                received.add(number)
    assert [one.new_counts()[0] for one in relays] == [0] * 7
