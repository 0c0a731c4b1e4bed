"""What every cluster promises (see `evorl.cluster.core`), asked of each."""

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
from itertools import islice
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

MEMBERS = 5
GONE_S = 60.0  # in which Ray, however busy its machine, has ended what it carried
Spawn = Callable[..., Group]
CLUSTERS: dict[str, Callable[[int], Cluster]] = {
    "local": lambda workers: Local(),
    "processes": lambda workers: Processes(workers=workers),
    "hosts": lambda workers: Islands(workers=workers, hosts=("a", "b")),
    "ray": lambda workers: Ray(workers=workers),
}
everywhere = pytest.mark.parametrize("kind", [*CLUSTERS], indirect=True, scope="module")
"""For what a landing asks of each, Ray apart: there a group takes a second to begin, and `make faults` asks it all."""


def children() -> set[int]:
    """The processes that this one has begun and that have not been waited for."""
    while True:
        tasks = Path("/proc/self/task").iterdir()
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
            return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


@pytest.fixture(scope="module", params=["local", "processes", "hosts", pytest.param("ray", marks=pytest.mark.fault)])
def kind(request: pytest.FixtureRequest) -> str:
    """The cluster under test, by name."""
    if request.param == "ray":
        request.getfixturevalue("address")
    return str(request.param)


@pytest.fixture
def spawn(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Spawn]:
    """Spawns groups of the cluster under test and closes them; then nothing of them may be left."""
    elsewhere = request.getfixturevalue("carriers") if kind == "ray" else list
    place = tempfile.mkdtemp(prefix="t-")  # short, as the path of a socket must be
    monkeypatch.setattr(tempfile, "tempdir", place)
    groups: list[Group] = []
    gc.collect()  # what earlier tests left in cycles, such as blocks of memory, would be freed meanwhile
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
def test_all_asks_every_member_and_answers_in_their_order(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    assert group.size == MEMBERS
    assert group.all("add", 2) == [[i, 2 * (i + 1)] for i in range(MEMBERS)]
    assert group.all("echo", 1, "two") == [[1, "two"]] * MEMBERS


def test_any_is_answered_by_some_member_and_futures_keep_their_answers(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    futures = [group.any("echo", i) for i in range(50)]
    assert [one.result() for one in reversed(futures)] == [*reversed(range(50))]
    assert all(one.done() for one in futures)
    assert futures[3].result() == 3


def test_map_answers_in_the_order_of_its_arguments(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    assert [*group.map("echo", ((i,) for i in range(500)))] == [*range(500)]
    assert [*group.map("echo", ())] == []
    naps = [0.02, 0.0, 0.01, 0.0]
    assert len([*group.map("nap", ((nap,) for nap in naps))]) == len(naps)


def test_who_is_free_takes_the_call(spawn: Spawn, kind: str) -> None:
    group = spawn(toys.Counter)
    slow, *quick = [group.any("nap", seconds) for seconds in (5.0, *[0.0] * 20)]
    for one in quick:
        one.result()
    assert kind == "local" or not slow.done()  # there nothing is done before somebody asks for it


def test_map_keeps_all_workers_busy(spawn: Spawn, kind: str) -> None:
    group = spawn(toys.Counter, workers=3)
    group.states()  # all have begun, however late
    pids = {*group.map("pid", ((n,) for n in range(300)))}
    assert len(pids) == (1 if kind == "local" else 3)


def test_long_calls_are_shared_out(spawn: Spawn, kind: str) -> None:
    """A worker says that it lives before it answers a long call: no reason to take it for a quick one."""
    group = spawn(toys.Counter, workers=3)
    pids = Counter(one.result() for one in [group.any("drowse", 0.15) for _ in range(15)])
    assert kind == "local" or (len(pids) == 3 and max(pids.values()) <= 8)


def test_map_takes_arguments_as_it_goes(spawn: Spawn) -> None:
    """An endless iterable is no reason to wait, nor to fill the memory."""
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
        assert (answer["index"], answer["sum"]) == (member, seen[member])  # none dropped, none twice
        assert (answer["array"] == seen[member] * 100 + member).all()
        answer["array"][:] = -1  # its reader's until the next one is taken
        if min(seen.values()) == 12:  # from everybody, however late it began
            break
    assert min(seen.values()) == 12
    stream.close()
    assert [state["sum"] for state in group.states()] == [*seen.values()]


@everywhere
def test_gather_begins_with_the_member_that_is_asked_for(spawn: Spawn) -> None:
    group = spawn(toys.Counter, workers=1)
    order = [member for member, _ in islice(group.gather("fragment", 10, begin=2), MEMBERS)]
    assert order == [*range(2, MEMBERS), 0, 1]


def test_a_slow_consumer_bounds_what_is_gathered(spawn: Spawn, tmp_path: Path) -> None:
    """While nobody takes answers, members stop: at most a few are ahead."""
    group = spawn(partial(Diligent, tmp_path), 2)
    stream = group.gather("work")
    taken = 0
    for _ in range(10):
        next(stream)
        taken += 1
        time.sleep(0.01)
        group.any("work_done").result()  # the group is served, and still nobody runs on
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= taken + 2 * (2 + 1)


class Diligent:
    """Marks in a file how often it worked."""

    def __init__(self, place: Path, index: int) -> None:
        self.path = place / str(index)
        self.path.touch()

    def work(self) -> np.ndarray[Any, Any]:
        with self.path.open("a") as file:
            file.write("x")
        return np.zeros(1 << 16)

    def work_done(self) -> int:
        return self.path.stat().st_size


def test_gathers_that_are_left_cost_nothing(spawn: Spawn, kind: str) -> None:
    """Each stream that is left gives its memory back: no process has more files or memory open after many."""
    group = spawn(toys.Counter, 2)

    def leave(times: int) -> list[int]:
        for _ in range(times):
            for _ in islice(group.gather("fragment", 50_000), 5):
                pass
        return [*group.all("open_files"), len(toys.files(sockets=kind != "ray"))]

    few = leave(3)
    assert all(now <= then + 2 for now, then in zip(leave(10), few, strict=True))


def test_a_stream_goes_on_with_the_arguments_it_is_sent(spawn: Spawn) -> None:
    """Each member has at most two calls of the former arguments under way, and then none."""
    group = spawn(toys.Counter, 3)
    stream = group.gather("told", 0, np.zeros(1))
    heard: dict[int, list[int]] = {member: [] for member in range(3)}
    member, (said, length) = next(stream)
    for new in range(1, 200):
        heard[member].append(said)
        assert length == 10_000 * (said % 5) + 1  # with the array that belongs to it
        member, (said, length) = stream.send((new, np.zeros(10_000 * (new % 5) + 1)))
    stream.close()
    for words in heard.values():
        old = words.count(0)  # called with them ahead of the first answer
        assert old <= 2 and words[old:] == sorted({*words[old:]})


# ------------------------------------------------------------------ the same anywhere


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
    assert [state["sum"] for state in group.states()] == [0] * MEMBERS  # nobody has been called yet
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


def test_restore_after_a_stream_that_was_left(spawn: Spawn) -> None:
    """What members were called with ahead of the answers that were taken is not done upon the restored states."""
    group, alone = spawn(toys.Counter, workers=1), Local().spawn(toys.Counter, MEMBERS)
    states = group.states()
    for _ in islice(group.gather("plod", 0.02), 3):
        pass
    group.restore(states)
    assert group.all("add", 7) == alone.all("add", 7)
    assert [state["sum"] for state in group.states()] == [state["sum"] for state in alone.states()]


def test_members_need_no_state(spawn: Spawn) -> None:
    group = spawn(toys.Stateless)
    assert group.all("which") == [*range(MEMBERS)]
    with pytest.raises(MemberError, match="state_dict"):
        group.states()
    assert group.all("which") == [*range(MEMBERS)]


# ------------------------------------------------------------------ data


DTYPES = ("bool", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", ">f8", ">i4")
SHAPES = ((), (0,), (3, 0, 2), (1,), (7, 5), (1, 1, 1, 1, 2), (40_000,))


def test_arrays_come_back_as_they_went(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 2)
    for shape in SHAPES:
        arrays = [np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype) for dtype in DTYPES]
        for sent, back in zip(arrays, group.any("echo", *arrays).result(), strict=True):
            assert isinstance(back, np.ndarray)
            assert (back.shape, back.dtype.newbyteorder("=")) == (sent.shape, sent.dtype.newbyteorder("="))
            assert np.array_equal(back, sent)


def test_arrays_that_are_not_contiguous(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 2)
    whole = np.arange(120_000).reshape(300, 400)
    for sent in (whole[::2, 1::3], whole.T, whole[::-1], np.broadcast_to(np.float32(2), (4, 5))):
        assert np.array_equal(group.any("echo", sent).result(), sent)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int64", "uint8", "bool"])
def test_tensors_come_back_as_they_went(spawn: Spawn, dtype: str) -> None:
    group = spawn(toys.Counter, 2)
    for shape in SHAPES:
        sent = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape).to(getattr(torch, dtype))
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
def test_an_error_tells_whose_and_where(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    for first in (0, 3):
        with pytest.raises(MemberError) as caught:
            group.all("boom", first)
        error = caught.value
        assert (error.member, error.kind) == (first, "KeyError")  # of several, the lowest
        assert f"member {first} has no such thing" in error.message
        assert "cluster_toys.py" in error.trace
        assert "in boom" in error.trace
        assert error.trace.rstrip() in str(error)
    assert group.all("add", 1) == [[i, i + 1] for i in range(MEMBERS)]  # the rest had finished, and go on


def test_errors_of_any_map_and_gather(spawn: Spawn) -> None:
    group = spawn(toys.Counter, 3)
    failing = group.any("boom", 0)
    assert group.any("echo", 1).result() == 1
    with pytest.raises(MemberError, match="KeyError"):
        failing.result()
    answers = group.map("hear", [("good",), ("bad",), ("good",)])
    assert next(answers) is None
    with pytest.raises(MemberError, match="bad word"):
        next(answers)
    with pytest.raises(MemberError, match="member 2"):
        for member, _ in group.gather("boom", 2):
            assert member < 2
    assert group.all("echo", 1) == [1, 1, 1]


def test_plain_errors_come_as_themselves(spawn: Spawn) -> None:
    group = spawn(toys.Counter, plain=(toys.Refused,))
    for refused in (lambda: group.all("refuse"), group.any("refuse").result):
        with pytest.raises(toys.Refused, match=r"(?m)^not today$"):
            refused()
    with pytest.raises(MemberError, match="VeryRefused: not today"):
        spawn(toys.Counter).all("refuse")


def test_what_making_a_member_raises(spawn: Spawn) -> None:
    with pytest.raises(toys.Refused, match=r"(?m)^member 1 is not to be made$"):
        spawn(toys.unmakeable, plain=(toys.Refused,))
    with pytest.raises(MemberError, match="member 1 is not to be made") as caught:
        spawn(toys.unmakeable)
    assert caught.value.member == 1


@pytest.mark.parametrize("method", ["_private", "__class__", "nothing", "index"])
def test_only_public_methods_can_be_called(spawn: Spawn, method: str) -> None:
    group = spawn(toys.Counter)
    with pytest.raises(MemberError, match=r"AttributeError|TypeError"):
        group.all(method)
    assert group.all("echo", 1) == [1] * MEMBERS


def test_wrong_arguments(spawn: Spawn) -> None:
    with pytest.raises(MemberError, match="TypeError"):
        spawn(toys.Counter).all("add")


def test_an_error_of_letters_that_cannot_be_sent(spawn: Spawn) -> None:
    with pytest.raises(MemberError, match="is no payload"):
        spawn(toys.Counter).all("surrogate")


def test_a_state_that_cannot_be_had_is_the_members_error(spawn: Spawn) -> None:
    group = spawn(toys.BadState, 2)
    with pytest.raises(MemberError, match="nor tomorrow"):
        group.states()
    assert group.any("which").result() in (0, 1)


# ------------------------------------------------------------------ ends


@everywhere
def test_members_are_closed(spawn: Spawn, tmp_path: Path) -> None:
    group = spawn(partial(toys.Closing, tmp_path))
    assert all(group.all("ready"))
    group.close()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(i): "closed\n" for i in range(MEMBERS)}


def test_closing_twice_is_closing(spawn: Spawn) -> None:
    spawn(toys.Counter).close()  # and the fixture closes it again


def test_a_group_is_closed_in_the_middle_of_its_work(spawn: Spawn) -> None:
    group = spawn(toys.Counter)
    next(group.gather("fragment", 60_000))
    group.any("nap", 0.01)
    group.close()


def test_unused_workers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert used_workers(2, 3) == 2 and not caplog.text
    assert used_workers(4, 1) == 1 and "3 of 4 workers are not used" in caplog.text
