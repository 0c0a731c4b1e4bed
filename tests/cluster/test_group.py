"""The contract of groups (see `evorl.cluster.core`), tested on every cluster."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import cluster_toys as toys
import numpy as np
import pytest
import torch
from islands import Islands

from evorl.cluster.core import Cluster, Group, Make, MemberError, used_workers
from evorl.cluster.local import Local
from evorl.cluster.processes import Processes
from evorl.cluster.ray import Ray
from evorl.cluster.transport import wire

MEMBERS = 5
GONE_S = 60.0  # for Ray to end its processes, even on a busy machine
Spawn = Callable[..., Group]
CLUSTERS: dict[str, Callable[[int], Cluster]] = {
    "local": lambda workers: Local(),
    "processes": lambda workers: Processes(workers=workers),
    "hosts": lambda workers: Islands(workers=workers, hosts=("a", "b")),
    "ray": lambda workers: Ray(workers=workers),
}
ON_RAY = pytest.param("ray", marks=pytest.mark.slow)
everywhere = pytest.mark.parametrize("kind", ["local", "processes", "hosts", ON_RAY], indirect=True, scope="module")
"""Tests that run on every cluster. A group takes a second to start on Ray, so the others run there in `make faults`."""
of_either_group = pytest.mark.slow_cases("processes")
"""What does not concern the transport: processes have the group of hosts, `RemoteGroup`."""


def children() -> set[int]:
    """Return the child processes of this process that have not been waited for."""
    while True:
        tasks = Path("/proc/self/task").iterdir()
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread has ended
            return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


@pytest.fixture(scope="module", params=["local", "processes", "hosts", pytest.param("ray", marks=pytest.mark.fault)])
def kind(request: pytest.FixtureRequest) -> str:
    """The name of the cluster under test."""
    if request.param == "ray":
        request.getfixturevalue("address")
    return str(request.param)


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> None:
    """`spawn` collects garbage in each test, and need not look through what all tests before this file have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def spawn(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Spawn]:
    """Spawn groups of the cluster under test, close them, and check that nothing of them remains."""
    elsewhere = request.getfixturevalue("worker_actors") if kind == "ray" else list
    place = tempfile.mkdtemp(prefix="t-")  # short, because socket paths are limited
    monkeypatch.setattr(tempfile, "tempdir", place)
    groups: list[Group] = []
    gc.collect()  # else cyclic garbage of earlier tests could be freed during this one
    before = children(), toys.files(sockets=kind != "ray")

    def spawned(make: Make, size: int = MEMBERS, *, plain: Sequence[type[Exception]] = (), workers: int = 2) -> Group:
        groups.append(CLUSTERS[kind](workers).spawn(make, size, plain))
        return groups[-1]

    try:
        yield spawned
        for group in groups:
            group.close()
        assert os.listdir(place) == []
        assert (children(), toys.files(sockets=kind != "ray")) == before
        ends = time.monotonic() + GONE_S
        while elsewhere():
            assert time.monotonic() < ends, elsewhere()
    finally:
        shutil.rmtree(place, ignore_errors=True)


# ------------------------------------------------------------------ calls


@everywhere
def test_workers_have_names_in_the_process_table(spawn: Spawn, kind: str) -> None:
    pids = spawn(toys.Counter).all("pid")
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
    own = Path("/proc/self/comm").read_text().strip()
    assert names == ({own} if kind in ("local", "hosts") else {"worker 0", "worker 1"})


@everywhere
def test_all_calls_every_member_and_answers_in_member_order(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    assert group.size == MEMBERS
    assert group.all("add", 2) == [[i, 2 * (i + 1)] for i in range(MEMBERS)]
    assert group.all("echo", 1, "two") == [[1, "two"]] * MEMBERS


@of_either_group
def test_any_is_answered_by_one_member_and_futures_keep_their_answers(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    futures = [group.any("echo", i) for i in range(50)]
    assert [one.result() for one in reversed(futures)] == [*reversed(range(50))]
    assert all(one.done() for one in futures)
    assert futures[3].result() == 3


@of_either_group
def test_map_yields_answers_in_the_order_of_arguments(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    assert [*group.map("echo", ((i,) for i in range(500)))] == [*range(500)]
    assert [*group.map("echo", ())] == []
    naps = [0.02, 0.0, 0.01, 0.0]
    assert len([*group.map("nap", ((nap,) for nap in naps))]) == len(naps)


@of_either_group
def test_a_free_worker_takes_the_call(spawn: Spawn, kind: str) -> None:
    group = spawn(toys.Counter)
    slow, *quick = [group.any("nap", seconds) for seconds in (5.0, *[0.0] * 20)]
    for one in quick:
        one.result()
    assert kind == "local" or not slow.done()  # local calls run when their answer is first needed


@of_either_group
def test_map_keeps_all_workers_busy(spawn: Spawn, kind: str) -> None:
    group = spawn(toys.Counter, workers=3)
    group.states()  # wait until all have started
    pids = {*group.map("pid", ((n,) for n in range(300)))}
    assert len(pids) == (1 if kind == "local" else 3)


@pytest.mark.slow_cases("local", "hosts")
def test_long_calls_are_distributed_evenly(spawn: Spawn, kind: str) -> None:
    """Heartbeats during a long call must not make the worker look fast."""
    group = spawn(toys.Counter, workers=3)
    pids = Counter(one.result() for one in [group.any("drowse", 0.15) for _ in range(15)])
    assert kind == "local" or (len(pids) == 3 and max(pids.values()) <= 8)


@of_either_group
def test_map_consumes_arguments_lazily(spawn: Spawn) -> None:
    """An endless iterable neither blocks nor fills the memory."""
    group = spawn(toys.Counter)
    taken = 0

    def endless() -> Iterator[tuple[int]]:
        nonlocal taken
        while True:
            taken += 1
            yield (taken,)

    assert [*islice(group.map("echo", endless()), 20)] == [*range(1, 21)]
    assert taken < 1000


@everywhere
def test_gather_streams_each_members_answers_in_order(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    seen: dict[int, int] = dict.fromkeys(range(MEMBERS), 0)
    stream: Any = group.gather("fragment", 6000)
    for member, answer in islice(stream, 20_000):
        seen[member] += 1
        assert (answer["index"], answer["sum"]) == (member, seen[member])  # none dropped or repeated
        assert (answer["array"] == seen[member] * 100 + member).all()
        answer["array"][:] = -1  # the array belongs to the consumer until the next answer
        if min(seen.values()) == 12:  # from all members, however late they started
            break
    assert min(seen.values()) == 12
    stream.close()
    assert [state["sum"] for state in group.states()] == [*seen.values()]


@everywhere
def test_gather_begins_with_the_given_member(spawn: Spawn) -> None:
    group = spawn(toys.Counter, workers=1)
    order = [member for member, _ in islice(group.gather("fragment", 10, begin=2), MEMBERS)]
    assert order == [*range(2, MEMBERS), 0, 1]


@of_either_group
def test_a_slow_consumer_limits_the_calls_of_gather(spawn: Spawn, tmp_path: Path) -> None:
    """While no answers are taken, members stop after a few calls."""
    group = spawn(partial(Diligent, tmp_path), 2)
    stream = group.gather("work")
    taken = 0
    for _ in range(10):
        next(stream)
        taken += 1
        time.sleep(0.01)
        group.any("work_done").result()  # the group handles messages, but calls no member of the stream
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= taken + 2 * (2 + 1)


class Diligent:
    """A member that counts its calls in a file."""

    def __init__(self, place: Path, index: int) -> None:
        self.path = place / str(index)
        self.path.touch()

    def work(self) -> np.ndarray[Any, Any]:
        with self.path.open("a") as file:
            file.write("x")
        return np.zeros(1 << 16)

    def work_done(self) -> int:
        return self.path.stat().st_size


def test_abandoned_gathers_release_their_memory(spawn: Spawn, kind: str) -> None:
    """No process has more open files or memory after many abandoned streams."""
    group = spawn(toys.Counter, 2)

    def leave(times: int) -> list[int]:
        for _ in range(times):
            for _ in islice(group.gather("fragment", 50_000), 5):
                pass
        return [*group.all("open_files"), len(toys.files(sockets=kind != "ray"))]

    few = leave(3)
    assert all(now <= then + 2 for now, then in zip(leave(10), few, strict=True))


@of_either_group
def test_a_stream_continues_with_the_arguments_sent_to_it(spawn: Spawn) -> None:
    """Each member has at most two calls with the former arguments in flight, and none later."""
    group = spawn(toys.Counter, 3)
    stream = group.gather("with_length", 0, np.zeros(1))
    received: dict[int, list[int]] = {member: [] for member in range(3)}
    member, (argument, length) = next(stream)
    for new in range(1, 200):
        received[member].append(argument)
        assert length == 10_000 * (argument % 5) + 1  # with the matching array
        member, (argument, length) = stream.send((new, np.zeros(10_000 * (new % 5) + 1)))
    stream.close()
    for arguments in received.values():
        old = arguments.count(0)  # calls ahead of the first answer
        assert old <= 2 and arguments[old:] == sorted({*arguments[old:]})


# ------------------------------------------------------------------ independence of the cluster


@of_either_group
def test_the_number_of_workers_changes_nothing(spawn: Spawn) -> None:
    answers = []
    for workers in (1, 2, 3, 8):
        group = spawn(toys.Counter, workers=workers)
        answers.append([group.all("add", x) for x in (3, 1, 4)] + [group.states()[2]["sum"]])
    assert all(one == answers[0] for one in answers)
    assert answers[0] == reference((3, 1, 4))


def reference(added: Sequence[int]) -> list[Any]:
    members = [toys.Counter(i) for i in range(MEMBERS)]
    return [[member.add(x) for member in members] for x in added] + [members[2].sum]


@everywhere
def test_states_and_restore(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    assert [state["sum"] for state in group.states()] == [0] * MEMBERS  # no member has been called yet
    group.all("add", 5)
    states = group.states()
    after = group.all("add", 7)
    assert [state["sum"] for state in states] == [5 * (i + 1) for i in range(MEMBERS)]
    group.restore(states)
    assert group.all("add", 7) == after
    other = spawn(toys.Counter, workers=3)
    other.restore(states)
    assert other.all("add", 7) == after
    for state, again in zip(group.states(), other.states(), strict=True):
        assert state["sum"] == again["sum"]
        assert np.array_equal(state["history"], again["history"])


@of_either_group
def test_restore_after_an_abandoned_stream(spawn: Spawn) -> None:
    """Calls ahead of the answers that were taken do not run on the restored states."""
    group, alone = spawn(toys.Counter, workers=1), Local().spawn(toys.Counter, MEMBERS)
    states = group.states()
    for _ in islice(group.gather("plod", 0.02), 3):
        pass
    group.restore(states)
    assert group.all("add", 7) == alone.all("add", 7)
    assert [state["sum"] for state in group.states()] == [state["sum"] for state in alone.states()]


@of_either_group
def test_states_together_may_be_larger_than_plain_data(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the number of workers would decide whether a run works: a message has the states of all their members."""
    monkeypatch.setattr(wire, "MAX_BODY", 40_000)
    group = spawn(toys.Large, workers=1)
    for _ in range(2):
        assert group.all("add") == [index + 1 for index in range(MEMBERS)]
        states = group.states()
        assert [state["x"][-1] for state in states] == [index + 1 for index in range(MEMBERS)]
        group.restore([{"x": state["x"] - 1} for state in states])
    streamed = dict(islice(group.gather("add"), 3 * MEMBERS))
    assert [state["x"].tolist() for state in group.states()] == [[streamed[i]] * 30_000 for i in range(MEMBERS)]


@of_either_group
def test_members_need_no_state(spawn: Spawn) -> None:
    group = spawn(toys.Stateless)
    assert group.all("which") == [*range(MEMBERS)]
    with pytest.raises(MemberError, match="state_dict"):
        group.states()
    assert group.all("which") == [*range(MEMBERS)]


# ------------------------------------------------------------------ data


DTYPES = ("bool", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", ">f8", ">i4")
SHAPES = ((), (0,), (3, 0, 2), (1,), (7, 5), (1, 1, 1, 1, 2), (40_000,))


def test_arrays_survive_a_round_trip(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 2)
    for shape in SHAPES:
        arrays = [np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype) for dtype in DTYPES]
        for sent, back in zip(arrays, group.any("echo", *arrays).result(), strict=True):
            assert isinstance(back, np.ndarray)
            assert (back.shape, back.dtype.newbyteorder("=")) == (sent.shape, sent.dtype.newbyteorder("="))
            assert np.array_equal(back, sent)


@pytest.mark.slow_cases("hosts")  # which send them as they do any array
def test_arrays_that_are_not_contiguous(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 2)
    whole = np.arange(120_000).reshape(300, 400)
    for sent in (whole[::2, 1::3], whole.T, whole[::-1], np.broadcast_to(np.float32(2), (4, 5))):
        assert np.array_equal(group.any("echo", sent).result(), sent)


TENSORS = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool)


def test_tensors_survive_a_round_trip(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 2)
    for dtype, shape in product(TENSORS, SHAPES):
        sent = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape).to(dtype)
        for back in group.all("echo", {"weights": [sent.requires_grad_(sent.is_floating_point())]}):
            (found,) = back["weights"]
            assert isinstance(found, torch.Tensor)
            assert found.dtype == sent.dtype
            assert torch.equal(found, sent)


def test_plain_data(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 2)
    data = {"a": [1, 2.5, None, True, "ä€𝄞", b"\x00\xff", -(1 << 63), (1 << 64) - 1], "": {}, "deep": [[[[[]]]]]}
    assert group.all("echo", data) == [data, data]
    (nan,) = {str(one) for one in group.all("echo", float("nan"))}
    assert nan == "nan"


# ------------------------------------------------------------------ errors


@everywhere
def test_an_error_names_its_member_and_line(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    for first in (0, 3):
        with pytest.raises(MemberError) as caught:
            group.all("boom", first)
        error = caught.value
        assert (error.member, error.kinds[:2]) == (first, ("KeyError", "LookupError"))  # the lowest of several members
        assert f"member {first} has no such thing" in error.message
        assert "cluster_toys.py" in error.trace
        assert "in boom" in error.trace
        assert error.trace.rstrip() in str(error)
    assert group.all("add", 1) == [[i, i + 1] for i in range(MEMBERS)]  # the others have finished, and continue


@of_either_group
def test_errors_of_any_map_and_gather(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 3)
    failing = group.any("boom", 0)
    assert group.any("echo", 1).result() == 1
    with pytest.raises(MemberError, match="KeyError"):
        failing.result()
    answers = group.map("listen", [("good",), ("bad",), ("good",)])
    assert next(answers) is None
    with pytest.raises(MemberError, match="bad word"):
        next(answers)
    with pytest.raises(MemberError, match="member 2"):
        for member, _ in group.gather("boom", 2):
            assert member < 2
    assert group.all("echo", 1) == [1, 1, 1]


@of_either_group
def test_plain_errors_are_raised_unchanged(spawn: Spawn) -> None:
    group = spawn(toys.Counter, plain=(toys.Refused,))
    for refused in (lambda: group.all("refuse"), group.any("refuse").result):
        with pytest.raises(toys.Refused, match=r"(?m)^not today$"):
            refused()
    with pytest.raises(MemberError, match="VeryRefused: not today"):
        spawn(toys.Counter).all("refuse")


def test_an_error_with_the_name_of_a_plain_one_is_none(spawn: Spawn) -> None:
    """Classes were compared by their names alone."""
    with pytest.raises(MemberError, match="member 0: Refused: not by me") as caught:
        spawn(toys.Counter, plain=(toys.Refused,)).all("refuse_otherwise")
    assert caught.value.kinds[:2] == ("elsewhere.Refused", "ValueError")


@of_either_group
def test_errors_of_making_a_member(spawn: Spawn) -> None:
    with pytest.raises(toys.Refused, match=r"(?m)^member 1 cannot be made$"):
        spawn(toys.unmakeable, plain=(toys.Refused,))
    with pytest.raises(MemberError, match="member 1 cannot be made") as caught:
        spawn(toys.unmakeable)
    assert caught.value.member == 1


@of_either_group
def test_only_public_methods_can_be_called(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    for method in ("_private", "__class__", "nothing", "index"):
        with pytest.raises(MemberError, match=r"AttributeError|TypeError"):
            group.all(method)
        assert group.all("echo", 1) == [1] * MEMBERS


@of_either_group
def test_wrong_arguments(spawn: Spawn) -> None:
    with pytest.raises(MemberError, match="TypeError"):
        spawn(toys.Counter).all("add")


@of_either_group
def test_an_error_with_characters_that_cannot_be_sent(spawn: Spawn) -> None:
    with pytest.raises(MemberError, match="is not a character"):
        spawn(toys.Counter).all("surrogate")


@of_either_group
def test_an_error_of_state_dict_is_a_member_error(spawn: Spawn) -> None:
    group = spawn(toys.BadState, 2)
    with pytest.raises(MemberError, match="nor tomorrow"):
        group.states()
    assert group.any("which").result() in (0, 1)


# ------------------------------------------------------------------ close


@everywhere
def test_members_are_closed(spawn: Spawn, tmp_path: Path) -> None:
    group = spawn(partial(toys.Closing, tmp_path))
    assert all(group.all("ready"))
    group.close()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(i): "closed\n" for i in range(MEMBERS)}


def test_closing_twice_is_allowed(spawn: Spawn) -> None:
    spawn(toys.Counter).close()  # and the fixture closes it again


def test_a_group_is_closed_during_calls(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    next(group.gather("fragment", 60_000))
    group.any("nap", 0.01)
    group.close()


def test_unused_workers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert used_workers(2, 3) == 2 and not caplog.text
    assert used_workers(4, 1) == 1 and "3 of 4 workers are not used" in caplog.text
