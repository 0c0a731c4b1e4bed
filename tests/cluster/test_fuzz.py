"""Runs under attack: messages to a group's socket are never executed and change no bit of the run."""

from __future__ import annotations

import os
import pickle
import random
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import cluster_toys as toys
import msgspec
import numpy as np
import pytest
import zmq
from harness import QUICK, WORLDS, experiment_of, fingerprint, rows, train_in
from hostile import mutated, payloads, reshaped
from islands import Islands

from evorl.cluster.core import Cluster, MemberError
from evorl.cluster.local import Local
from evorl.cluster.processes import Processes
from evorl.cluster.transport.authentication import USER, present_token
from evorl.cluster.transport.wire import MAX_FRAME, PIECE, Bulk, Header, Kind, ProtocolError, check_outcomes, unpack
from evorl.cluster.workers.calls import Call, CallQueue
from evorl.cluster.workers.group import RemoteGroup
from evorl.cluster.workers.handle import WorkerHandle
from evorl.cluster.workers.inbox import Inbox
from evorl.cluster.workers.lifecycle import State
from evorl.cluster.workers.pool import WorkerPool
from evorl.cluster.workers.sender import Sender

MEMORY = 100 << 10  # KiB, the most memory that an attack may cost


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A path that must not be created, in a directory that must stay empty."""
    place = tmp_path / "canary"
    place.mkdir()
    yield place / "executed"
    assert [*place.iterdir()] == []


def test_the_payloads_are_harmful_when_unpickled(tmp_path: Path) -> None:
    found = payloads(tmp_path / "executed")
    assert len(found) >= 50
    assert len(set(found)) == len(found)
    done = 0
    for payload in found:
        try:
            pickle.loads(payload)
        except Exception:
            continue
        done += (tmp_path / "executed").exists()
        (tmp_path / "executed").unlink(missing_ok=True)
    assert done >= 20


# ------------------------------------------------------------------ a whole run


HEADS, BODIES = list[int], list[tuple[list[tuple[bool, Any]], list[Any]]]
PARSED = (Kind.HELLO, *[Kind.ANSWER] * 5, Kind.STORED, Kind.MISSING, Kind.RELAY_COUNTS, *[Kind.CALL] * 2)


def forged(draw: random.Random, handle: WorkerHandle, kind: Kind, payload: bytes) -> list[bytes]:
    """Return a message with the header of the worker's next one and a hostile or truncated payload."""
    end = handle.process.connection
    header = Header(kind, end.token, end.worker, end.life, end.received + 1)
    nonsense = draw.choice([payload, b"\x93\x01", b"\xc1", payload + b"\xc1"])
    if kind != Kind.ANSWER or not (handle.ready and handle.calls.in_flight) or draw.random() < 0.3:
        return with_sizes(header, [nonsense, msgspec.msgpack.encode(None)])
    call = handle.calls.in_flight[0]
    envelope, states = msgspec.msgpack.encode([call.number]), [None] * len(call.members)
    if draw.random() < 0.2:  # announces arrays that do not exist
        header = header._replace(bulk=Bulk.SHARED, size=64)
        answers = [([(True, None)] * len(call.members), states)]
        return with_sizes(header, [envelope, msgspec.msgpack.encode(answers), payload[:9]])
    return with_sizes(header, [envelope, nonsense])


def with_sizes(header: Header, frames: list[bytes]) -> list[bytes]:
    """Return a message whose header has the right sizes of envelope and body."""
    return [header._replace(envelope=len(frames[0]), body=len(frames[1])).pack(), *frames]


def mutated_answer(draw: random.Random, handle: WorkerHandle, answer: list[bytes]) -> list[bytes]:
    """Return a real answer, readdressed to the next call, mutated until it is invalid."""
    call, size = handle.calls.in_flight[0], Header.unpack(answer[0]).size
    bulk = [bytes(size)] if size else []
    kind = Bulk.FRAME if size else Bulk.NONE
    end = handle.process.connection
    header = Header(Kind.ANSWER, end.token, end.worker, end.life, end.received + 1, kind, size)
    envelope, body = msgspec.msgpack.encode([call.number]), answer[2]
    while True:
        changed = [envelope, body]
        at = draw.randrange(2)
        changed[at] = mutated(draw, changed[at : at + 1])[0]
        if not is_valid_answer(call, *changed, *bulk):
            return with_sizes(header, [*changed, *bulk])


def is_valid_answer(call: Call, envelope: bytes, body: bytes, bulk: bytes = b"") -> bool:
    """Return whether these are a valid answer to the call."""
    try:
        [number] = unpack(envelope, form=HEADS)
        [(outcomes, states)] = unpack(body, bulk, True, BODIES)
        check_outcomes(outcomes, len(call.members))
    except ValueError:  # also if there are several
        return False
    fit = all(x is None or (isinstance(x, np.ndarray) and x.dtype == np.uint8 and x.ndim == 1) for x in states)
    return bool(number == call.number and len(states) == len(call.members) and fit)


class Attack:
    """Sends hostile messages to a group's socket from inside its driver, whenever the driver polls."""

    def __init__(self, hostile: list[bytes], count: int, each: int, kill_at: int) -> None:
        self.hostile, self.count, self.each, self.kill_at = hostile, count, each, kill_at
        self.draw = random.Random(5)
        self.sent = self.strikes = self.kills = 0
        self.forged = 0  # forged messages of workers
        self.mutated_answers = 0  # of these, mutated answers
        self.refused: Counter[str] = Counter()  # messages, by the failed check
        self.seen: deque[list[bytes]] = deque(maxlen=50)  # real messages of the run
        self.answers: deque[list[bytes]] = deque(maxlen=50)  # of these, answers to one call
        self.context = zmq.Context()
        self.open: list[zmq.Socket[bytes]] = []
        self.pool: WorkerPool | None = None

    def begin(self, pool: WorkerPool) -> None:
        self.pool = pool
        endpoint = pool.launcher.endpoint
        path = endpoint.removeprefix("ipc://")
        assert os.stat(os.path.dirname(path)).st_mode & 0o077 == 0  # not accessible to other users
        self.insider = self._dealer(endpoint, b"an insider", pool._token)
        thieves = [b"%d.%d" % (worker, life) for worker in range(2) for life in range(3)]
        self.outsiders = [self._dealer(endpoint, name, None) for name in (b"foreign", *thieves)]
        self.outsiders += [self._dealer(endpoint, name, bytes(16)) for name in (b"foreign too", *thieves)]
        self.open += [self.insider, *self.outsiders]
        self.raws = [*self.hostile, b"\xff" + bytes(8) + b"\x7f\x03" + bytes(53) + b"\x02" + b"\xff" * 8]

    def _dealer(self, endpoint: str, identity: bytes, token: bytes | None) -> zmq.Socket[bytes]:
        dealer = self.context.socket(zmq.DEALER)
        dealer.linger, dealer.sndhwm, dealer.identity = 0, 1000, identity
        dealer.reconnect_ivl = -1  # a refused peer does not reconnect
        if token is not None:
            present_token(dealer, token)
        dealer.connect(endpoint)
        return dealer

    def _raw(self, path: str, content: bytes) -> None:
        """Send bytes that are not ZeroMQ's protocol."""
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(path)
            raw.setblocking(False)
            try:
                raw.send(content)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                return

    def remove(self, poll_driver: Callable[[], None]) -> None:
        """Send mutated messages and hostile payloads over all connections."""
        assert self.pool is not None
        if self.sent >= self.count or (not self.strikes and not all(handle.ready for handle in self.pool.handles)):
            return
        self.strikes += 1
        if self.strikes == 1:  # the workers are connected: their identities are taken
            self.doubles = [self._dealer(self.pool.launcher.endpoint, b"%d.0" % w, self.pool._token) for w in range(2)]
            self.open += self.doubles
        if self.strikes == 2:  # no peer is in its handshake
            for content in self.raws:
                self._raw(self.pool.launcher.endpoint.removeprefix("ipc://"), content)
        for _ in range(min(self.each, self.count - self.sent)):
            message = self._message()
            pieces = [one[at : at + PIECE] for one in message for at in range(0, len(one) or 1, PIECE)]
            while not self._try(self.insider, pieces):  # a larger frame would end its connection
                poll_driver()
            self.sent += 1
        for other in (*self.outsiders, *self.doubles):
            self._try(other, self._message())
            self._try(other, self.seen[-1])  # a stolen message, unchanged
        if self.strikes == self.kill_at:
            reader = self.pool.handles[0].process.reader
            assert reader is not None
            os.kill(reader.pid, signal.SIGKILL)
            self.kills += 1

    def awaited(self) -> list[WorkerHandle]:
        """Return the ready workers with calls in flight; not those being replaced."""
        assert self.pool is not None
        return [one for one in self.pool.handles if one.ready and one.calls.in_flight]

    def interrupt(self) -> None:
        """Forge messages while an answer is awaited; all remaining ones at the end, as the run may be over soon."""
        left, ending = self.count - self.forged, self.sent == self.count
        if self.answers and (self.awaited() or (ending and left <= self.each)):
            for _ in range(left if ending else min(self.each, left)):
                self.forge()

    def forge(self) -> None:
        """Pass an invalid message to the pool as a worker's next message."""
        assert self.pool is not None
        handle = self.draw.choice(self.pool.handles)
        kind = self.draw.choice(PARSED)
        content = forged(self.draw, handle, kind, self.draw.choice(self.hostile))
        awaited = self.awaited()
        if kind == Kind.ANSWER and self.answers and awaited and self.draw.random() < 0.8:
            handle = self.draw.choice(awaited)
            content = mutated_answer(self.draw, handle, self.draw.choice(self.answers))
            self.mutated_answers += 1
        if kind == Kind.CALL:  # a mutated old message, with a wrong number or header
            content = mutated(self.draw, self.draw.choice(self.seen))
            with suppress(ProtocolError):
                handle.process.connection.check(content)
                return self.forge()  # still valid: try another
        self.forged += 1
        before = vars(handle.process.connection).copy()
        with pytest.raises(ProtocolError):
            self.pool.inbox._handle(handle.process.name, content)
        assert vars(handle.process.connection) == before

    def record_accepted(self, frames: list[bytes]) -> None:
        """Record an accepted message."""
        self.seen.append(frames)
        if Header.unpack(frames[0]).kind == Kind.ANSWER and [n > 0 for n in unpack(frames[1], form=HEADS)] == [True]:
            self.answers.append(frames)

    def count_refused(self, identity: bytes, frames: list[bytes]) -> None:
        """Count a refused message by the failed check."""
        assert self.pool is not None
        handle = self.pool.inbox._by_name.get(identity)
        if handle is None:
            self.refused["name"] += 1
            return
        try:
            handle.process.connection.check(frames)
            self.refused["content"] += 1
        except ProtocolError:
            self.refused["connection"] += 1

    def _message(self) -> list[bytes]:
        frames = self.draw.choice(self.seen)
        if self.sent < 5 * len(self.hostile):
            payload, where = self.hostile[self.sent // 5], self.sent % 5
            return [[payload], [payload] * 4, [frames[0], payload, frames[2]], [*frames[:2], payload],
                    [frames[0][:7] + bytes([Bulk.SHARED]) + frames[0][8:], *frames[1:3], payload]][where]  # fmt: skip
        return mutated(self.draw, frames)

    def _try(self, other: zmq.Socket[bytes], frames: list[bytes]) -> bool:
        try:
            other.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:  # its queue is full: the driver does not read, or refuses it
            return False
        return True

    def close(self) -> None:
        for one in self.open:
            one.close()
        self.context.term()


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch, canary: Path) -> Iterator[Any]:
    made: list[Attack] = []
    poll, take, receive = WorkerPool.poll, Inbox._handle, Inbox._receive

    def attack(count: int, each: int) -> Attack:
        made.append(Attack(payloads(canary), count, each, kill_at=5))
        monkeypatch.setattr(WorkerPool, "poll", polled)
        monkeypatch.setattr(Inbox, "_handle", taken)
        monkeypatch.setattr(Inbox, "_receive", received)
        return made[-1]

    def polled(pool: WorkerPool, timeout_s: float) -> None:
        one = made[-1]
        if one.pool is None:
            one.begin(pool)
        one.interrupt()  # before it: until all of its messages are read, the awaited answers may have come
        one.remove(lambda: poll(pool, 0.01))
        one.interrupt()  # after it: this poll may be the run's last
        poll(pool, timeout_s)

    def taken(inbox: Inbox, identity: bytes, frames: list[bytes]) -> None:
        try:
            take(inbox, identity, frames)
        except ProtocolError:
            made[-1].count_refused(identity, frames)
            raise
        made[-1].record_accepted([bytes(frame) for frame in frames])

    def received(inbox: Inbox) -> bool:
        if made[-1].strikes and made[-1].forged < made[-1].count // 8 and made[-1].draw.random() < 0.2:
            made[-1].forge()  # also if no answer is awaited; most are forged while one is
        return receive(inbox)

    yield attack
    for one in made:
        one.close()


def peak() -> int:
    """Return the peak resident memory of this process in KiB."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def run_under_attack(attack: Attack, tmp_path: Path) -> None:
    words = (*WORLDS["pong"], *QUICK, "budget.steps=10000", "rl.members=2", "cluster=processes", "cluster.workers=2")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak of memory
    before = peak()
    train_in(tmp_path / "attacked", experiment_of(*words))
    assert attack.pool is not None
    assert attack.sent == attack.count
    assert attack.kills == 1
    assert attack.pool.replaced == 1
    most = len(attack.outsiders) + len(attack.raws)  # peers without a token may disconnect by themselves
    assert most // 2 < attack.pool.socket.refused <= most
    assert attack.forged == attack.count == attack.refused["connection"] + attack.refused["content"]
    assert attack.refused["connection"] > attack.count / 10
    assert attack.refused["content"] > attack.count / 2
    assert attack.refused["name"] > attack.count / 2
    assert attack.mutated_answers > attack.count / 5
    assert attack.pool.refused >= attack.refused["name"] + attack.pool.socket.refused
    told = [row["cluster/refused"] for row in rows(tmp_path / "attacked") if "cluster/refused" in row]
    assert attack.count / 2 < told[-1] <= attack.pool.refused
    assert peak() - before < MEMORY


@pytest.fixture
def quiet(tmp_path: Path) -> dict[str, Any]:
    """The fingerprint of the same run, undisturbed and in one process."""
    train_in(tmp_path / "quiet", experiment_of(*WORLDS["pong"], *QUICK, "budget.steps=10000", "rl.members=2"))
    return fingerprint(tmp_path / "quiet")


@pytest.mark.slow
def test_a_run_under_attack_is_unchanged_bit_for_bit(quiet: dict[str, Any], attacked: Any, tmp_path: Path) -> None:
    run_under_attack(attacked(5_000, 150), tmp_path)
    assert fingerprint(tmp_path / "attacked") == quiet


@pytest.mark.fault
def test_a_run_under_long_attack_is_unchanged_bit_for_bit(quiet: dict[str, Any], attacked: Any, tmp_path: Path) -> None:
    run_under_attack(attacked(120_000, 3_000), tmp_path)
    assert fingerprint(tmp_path / "attacked") == quiet


# ------------------------------------------------------------------ a frame that is too large


def oversized(path: str, token: bytes) -> bytes:
    """Connect with the token, begin a frame that is one byte too long, and return all replies.

    ZMTP 3.0 (ZeroMQ's RFC 23) with the mechanism PLAIN (RFC 24), by hand, because no library sends such a frame.
    """

    def command(name: bytes, body: bytes) -> bytes:
        whole = bytes([len(name)]) + name + body
        return b"\x04" + bytes([len(whole)]) + whole

    def short(text: bytes) -> bytes:
        return bytes([len(text)]) + text

    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(30)
        raw.connect(path)
        content = b""

        def wait_for(word: bytes) -> None:
            nonlocal content
            while word not in content and (more := raw.recv(4096)):
                content += more

        raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32))
        raw.sendall(command(b"HELLO", short(USER) + short(token.hex().encode())))
        wait_for(b"WELCOME")
        raw.sendall(command(b"INITIATE", short(b"Socket-Type") + len(b"DEALER").to_bytes(4) + b"DEALER"))
        wait_for(b"READY")
        raw.sendall(b"\x02" + (MAX_FRAME + 1).to_bytes(8) + bytes(100))
        with suppress(ConnectionResetError):
            while more := raw.recv(4096):
                content += more
    return content


def test_an_oversized_frame_ends_its_connection() -> None:
    group: Any = Processes(workers=1).spawn(toys.Counter, 2)
    try:
        path = group.pool.launcher.endpoint.removeprefix("ipc://")
        with ThreadPoolExecutor(1) as insider:
            replies = insider.submit(oversized, path, group.pool._token)
            while not replies.done():  # the driver polls during calls
                assert group.all("echo", 1) == [1, 1]
        assert b"READY" in replies.result(), "it was accepted"
        assert group.all("add", 1) == Local().spawn(toys.Counter, 2).all("add", 1)
    finally:
        group.close()


# ------------------------------------------------------------------ messages of a real worker


def recorded(group: RemoteGroup, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[bytes], list[Call]]]:
    """Return messages of all kinds and sizes from a worker, each with its calls in flight at that time."""
    found: list[tuple[list[bytes], list[Call]]] = []
    take = Inbox._handle

    def taken(inbox: Inbox, identity: bytes, frames: list[bytes]) -> None:
        waiting = [replace(call) for call in group.pool.handles[0].calls.in_flight]
        take(inbox, identity, frames)
        found.append((frames, waiting))

    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "_handle", taken)
        os.kill(group.all("pid")[0], signal.SIGKILL)  # so that there is a hello, too
        group.all("add", 1)
        for n in range(3):  # broadcast, on another host
            group.all("digest", np.full(10_000, n))
        group.all("fragment", 10)
        for _ in islice(group.gather("fragment", 10_000), 3):
            pass
        group.any("echo", {"a": 1.5, "b": [None, "x"]}).result()
        with pytest.raises(MemberError):
            group.all("boom", 0)
        if address := group.pool.handles[0].process.relay.endpoint:  # a foreign connection to its relay
            host, port = address.removeprefix("tcp://").rsplit(":", 1)
            refused, ends = group.pool.refused, time.monotonic() + 30
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while group.pool.refused == refused:
                    assert time.monotonic() < ends and group.all("echo", 1)
            assert any(Header.unpack(frames[0]).kind == Kind.RELAY_COUNTS for frames, _ in found)
    return found


@pytest.mark.parametrize("cluster", [Processes(workers=1), Islands(workers=1)], ids=["here", "on another host"])
def test_every_message_of_a_worker_is_accepted_or_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, canary: Path
) -> None:
    """With the right token, worker and number; a message of any other form raises only `ProtocolError`."""
    group = cluster.spawn(toys.Counter, 2)
    assert isinstance(group, RemoteGroup)
    try:
        messages, (handle,) = recorded(group, monkeypatch), group.pool.handles
        process, received, states = handle.process, handle.process.connection.received, handle.member_states
        draw, refused, accepted, ways = random.Random(6), 0, 0, (mutated, reshaped)
        with monkeypatch.context() as patch:
            patch.setattr(Sender, "send", lambda *_: None)
            hostile = [(draw.choice(messages), payload) for payload in payloads(canary) for _ in range(10)]
            for (frames, waiting), payload in [*hostile, *((draw.choice(messages), None) for _ in range(10_000))]:
                process.connection.received = Header.unpack(frames[0]).number - 1
                handle.calls = CallQueue(deque(replace(call) for call in waiting))
                handle.state, handle.member_states = draw.choice([State.MAKING, State.READY]), {**states}
                handle.process = replace(process, released=[])
                if draw.random() < 0.2:
                    handle.state, handle.process.host, handle.process.reader = State.STARTING, "", None
                at = draw.randrange(1, len(frames))
                content = [*frames[:at], payload, *frames[at + 1 :]] if payload else draw.choice(ways)(draw, frames)
                try:
                    group.pool.inbox._handle(process.name, content)
                    accepted += 1
                except ProtocolError:
                    refused += 1
                except MemberError:  # reports that a member could not be made
                    accepted += 1
        assert refused > 5_000
        assert accepted > 100
        process.connection.received, handle.process, handle.member_states = received, process, states
        handle.calls, handle.state = CallQueue(), State.READY
        assert group.all("echo", 7) == [7, 7]
    finally:
        group.close()
