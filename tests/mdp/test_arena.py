"""The arena of battles against battles played one by one, and what it does when they are slow or break."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Walk, WalkBattle

from evorl.mdp.battle_arena import BattleArena
from evorl.mdp.core import Arena, Decisions, WorldError
from evorl.mdp.ticks import Idle, Ticks
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator

pytestmark = pytest.mark.usefixtures("at_once")
EPISODES = Episodes(7)


def choose(slot: int, number: int, legal: Any) -> int:
    """The action that a slot's decision number n always gets: a legal one."""
    return int(generator("choose", slot, number).choice(np.flatnonzero(legal)))


class Driver:
    """Answers slots with their keyed actions and keeps what each of them saw."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.seen: list[list[Any]] = [[] for _ in range(arena.slots)]
        self.failed: list[list[int]] = [[] for _ in range(arena.slots)]  # which of these followed a failure
        self.waiting: set[int] = set()
        self.cost = 0

    def recv(self) -> Decisions:
        now = self.arena.recv()
        self.legal: Any = now.legal
        assert not self.waiting & set(now.slots.tolist())
        self.waiting |= set(now.slots.tolist())
        self.cost += now.cost
        results = dict(now.results)
        for slot in now.failed:
            self.failed[slot].append(len(self.seen[slot]))
        for slot in now.slots.tolist():
            row = [now.inputs[0][slot].tolist(), int(now.inputs[1][slot]), now.reward[slot].tolist()]
            row += [bool(now.terminated[slot]), bool(now.truncated[slot]), results.pop(slot, None)]
            row += [[x[slot].tolist() for x in now.final] if now.truncated[slot] else None]
            self.seen[slot].append(row)
        assert not results
        return now

    def send(self, slots: list[int] | None = None) -> None:
        slots = sorted(self.waiting if slots is None else slots)
        actions = [[choose(slot, len(self.seen[slot]), self.legal[slot])] for slot in slots]
        self.arena.send(np.array(slots, np.int64), np.array(actions, np.int64))
        self.waiting -= set(slots)

    def play(self, decisions: int) -> list[list[Any]]:
        while min(map(len, self.seen)) < decisions:
            if self.waiting:
                self.send()
            self.recv()
        return [seen[:decisions] for seen in self.seen]


def by_hand(world: Walk, slot: int, decisions: int) -> list[Any]:
    """What one slot of a one-sided world sees, its battles played one after the other."""

    async def play() -> list[Any]:
        seen: list[Any] = []
        last: list[Any] = [[0.0, 0.0], False, False, None, None]
        episode = 0
        while True:
            battle = world.reset(0, seed=int(EPISODES(slot, episode)))
            async with battle:
                (side,) = battle.controllers
                step = None
                while step is None or not step.over:
                    state = side.state
                    seen.append([state.inputs[0].tolist(), int(state.inputs[1]), *last])
                    if len(seen) == decisions:
                        return seen
                    step = await side(np.array([choose(slot, len(seen), state.legal)]))
                    last = [step.reward.tolist(), step.terminated, step.truncated, None, None]
                last[3] = dict(side.result())
                last[4] = [x.tolist() for x in side.state.inputs] if step.truncated else None
            episode += 1

    return asyncio.run(play())


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, logger="evorl"):
        yield caplog


def test_every_slot_receives_its_battles_states() -> None:
    world = Walk()
    with closing(world.arena(5, EPISODES)) as arena:
        seen = Driver(arena).play(40)
    assert seen == [by_hand(Walk(), slot, 40) for slot in range(5)]
    ends = [row for rows in seen for row in rows if row[5] is not None]
    assert any(row[3] for row in ends) and any(row[4] for row in ends)  # both kinds of end were met


def test_fast_battles_all_wait_after_one_recv() -> None:
    with closing(Walk(sides=2).arena(6, EPISODES)) as arena:
        driver = Driver(arena)
        for _ in range(30):
            assert driver.recv().slots.tolist() == list(range(6))
            driver.send()


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_grouping_changes_nothing(random: Any) -> None:
    with closing(Walk().arena(6, EPISODES)) as arena:
        expected = Driver(arena).play(12)
    with closing(Walk().arena(6, EPISODES)) as arena:
        driver = Driver(arena)
        driver.recv()
        while min(map(len, driver.seen)) < 12:
            slots = [slot for slot in driver.waiting if random.random() < 0.5] or sorted(driver.waiting)[:1]
            driver.send(slots)
            if not driver.waiting or random.random() < 0.7:
                driver.recv()
    assert [seen[:12] for seen in driver.seen] == expected


def test_a_waiting_slot_is_returned_once() -> None:
    with closing(Walk(longest=99).arena(3, EPISODES)) as arena:
        driver = Driver(arena)
        row = driver.recv().inputs[0][1]
        kept = row.copy()
        for _ in range(10):
            driver.send([0, 2])
            assert driver.recv().slots.tolist() == [0, 2]
        assert (row == kept).all()
        with pytest.raises(RuntimeError, match="every slot waits"):
            arena.recv()
        driver.send([1])
        with pytest.raises(ValueError, match="slot 1 does not wait"):
            arena.send(np.array([1]), np.array([[0]]))
        assert driver.recv().slots.tolist() == [1]


def test_steps_count_once_for_all_sides() -> None:
    costs = []
    for sides in (1, 2, 3):
        with closing(Walk(sides=sides).arena(2 * sides, EPISODES)) as arena:
            driver = Driver(arena)
            driver.play(20)
            costs.append(driver.cost)
    assert costs[0] > 40 and costs[1] == costs[2] == costs[0]


def test_sides_share_a_game() -> None:
    with pytest.raises(BadRequest, match="5 slots cannot be divided") as refused:
        Walk(sides=2).arena(5, EPISODES)
    assert refused.value.key == "rl.slots"
    with closing(Walk(sides=2).arena(4, EPISODES)) as arena:
        now = arena.recv()
        assert now.inputs[0][:, 1].tolist() == [0, 1, 0, 1]
        key = int(EPISODES(1, 0))
        assert [np.array(arena.render(slot))[0, 0, 0] for slot in (2, 3)] == [key % 256] * 2


def test_a_side_that_ends_early_waits_for_its_game() -> None:
    world = Walk(sides=2, same_length=False)
    with closing(world.arena(2, EPISODES)) as arena:
        driver = Driver(arena)
        driver.play(20)
    for n, ended in enumerate(row[5] for row in driver.seen[0]):
        assert (ended is None) == (driver.seen[0][n][1] > 0 or n == 0)  # an end always shows the next game's start
    lengths = [[row[5]["length"] for row in rows if row[5]] for rows in driver.seen]
    assert any(a != b for a, b in zip(*lengths, strict=False))


def test_the_last_side_ends_with_its_game() -> None:
    held = []

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        held.append(battle.seed)

    with closing(Walk(sides=2, same_length=False, event=event).arena(2, EPISODES)) as arena:
        Driver(arena).play(12)
    assert held == sorted(held, key=[int(EPISODES(0, n)) for n in range(12)].index)  # games do not overlap


# ------------------------------------------------------------------ slow battles


def test_a_slow_battle_does_not_delay_others() -> None:
    never = []

    def event(battle: WalkBattle, player: int, decision: int) -> Any:
        if battle.seed != int(EPISODES(0, 0)):
            return None
        never.append(asyncio.get_running_loop().create_future())
        return never[-1]

    with closing(Walk(event=event).arena(3, EPISODES)) as arena:
        driver = Driver(arena)
        driver.recv()
        for _ in range(20):
            driver.send()
            assert driver.recv().slots.tolist() == [1, 2]
        never[0].set_result(None)
        driver.send()
        assert driver.recv().slots.tolist() == [0, 1, 2]
    assert len(never) == 1


def test_a_polling_battle_does_not_delay_others() -> None:
    async def poll() -> None:
        while True:
            await asyncio.sleep(0)

    slow = int(EPISODES(0, 0))
    world = Walk(event=lambda battle, player, decision: poll() if battle.seed == slow else None)
    with closing(world.arena(3, EPISODES)) as arena:
        driver = Driver(arena)
        driver.recv()
        for _ in range(5):
            driver.send()
            assert driver.recv().slots.tolist() == [1, 2]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is long at once, and the only thread is ours whatever other tests left."""
    monkeypatch.setattr("evorl.mdp.event_loop.STALL_S", 0.01)
    before = threading.active_count()
    monkeypatch.setattr(
        "evorl.mdp.event_loop.threading.active_count", lambda count=threading.active_count: count() - before + 1
    )


@pytest.mark.usefixtures("impatient")
def test_a_world_that_cannot_wake_raises() -> None:
    world = Walk(event=lambda battle, player, decision: asyncio.get_running_loop().create_future())
    with closing(world.arena(2, EPISODES)) as arena:
        driver = Driver(arena)
        driver.recv()
        driver.send()
        with pytest.raises(RuntimeError, match=r"no battle of Walk goes on$"):
            driver.recv()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["thread", "socket"])
def test_a_long_computation_is_waited_for_with_one_warning(kind: str, log: pytest.LogCaptureFixture) -> None:
    """One slot computes outside the loop, silent for many times the patience; the other's answer is kept back."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    silences: list[int] = []

    class Patient(logging.Handler):
        """The computation ends a few silences after the warning."""

        def emit(self, record: logging.LogRecord) -> None:
            silences.append(1)
            threading.Timer(0.1, theirs.send, [b"x"]).start()

    def compute() -> None:
        while not select.select([ours], [], [], 5)[0]:
            pass

    async def wait() -> None:
        await (asyncio.get_running_loop().sock_recv(ours, 1) if kind == "socket" else asyncio.to_thread(compute))

    slow = int(EPISODES(0, 0))
    world = Walk(longest=99, event=lambda battle, player, at: wait() if battle.seed == slow and at == 0 else None)
    handler = Patient()
    logging.getLogger("evorl").addHandler(handler)
    try:
        with closing(world.arena(2, EPISODES)) as arena, closing(ours), closing(theirs):
            driver = Driver(arena)
            driver.recv()
            driver.send([0])
            assert driver.recv().slots.tolist() == [0]
    finally:
        logging.getLogger("evorl").removeHandler(handler)
    assert len(silences) == 1
    assert "the slots [1] were not answered; waiting for the world" in log.records[0].getMessage()


@pytest.mark.usefixtures("impatient")
def test_a_missing_action_is_reported() -> None:
    with closing(Walk(sides=2).arena(2, EPISODES)) as arena:
        driver = Driver(arena)
        with pytest.raises(RuntimeError, match=r"no battle of Walk goes on: the slots \[1\]"):
            for _ in range(20):
                driver.recv()
                driver.send([0])


# ------------------------------------------------------------------ battles that break


class Broken(Exception):
    pass


def breaks(slot: int, times: int, decision: int) -> tuple[list[int], Any]:
    """An event that raises at a decision of a slot's first episode, so many times."""
    left = [times]

    def event(battle: WalkBattle, player: int, at: int) -> None:
        if battle.seed == int(EPISODES(slot, 0)) and at == decision and left[0] > 0:
            left[0] -= 1
            raise Broken("this very cause")

    return left, event


def test_a_broken_battle_starts_again_under_its_key(log: pytest.LogCaptureFixture) -> None:
    slot = next(s for s in range(99) if len(by_hand_first(s)) >= 4)
    _, event = breaks(slot, 2, decision=2)
    with closing(Walk(event=event).arena(slot + 2, EPISODES)) as arena:
        driver = Driver(arena)
        driver.play(12)
    rows = driver.seen[slot]
    assert [n for n, each in enumerate(driver.failed) if each] == [slot] and driver.failed[slot] == [3, 6]
    for n in driver.failed[slot]:
        assert rows[n] == rows[0]  # the same episode again, and nothing came of the decision before
    others = [seen[:12] for s, seen in enumerate(driver.seen) if s != slot]
    assert others == [by_hand(Walk(), s, 12) for s in range(slot + 2) if s != slot]
    assert [record.name for record in log.records] == ["evorl"] * 2
    text = log.records[0].getMessage()
    assert f"slot {slot}" in text and str(int(EPISODES(slot, 0))) in text and "this very cause" in text


def by_hand_first(slot: int) -> list[Any]:
    rows = by_hand(Walk(), slot, 12)
    return rows[: next((n for n, row in enumerate(rows) if row[5]), 12)]


def test_the_third_failure_of_a_key_is_final(log: pytest.LogCaptureFixture) -> None:
    _, event = breaks(1, 3, decision=0)
    with closing(Walk(event=event).arena(3, EPISODES)) as arena:
        driver = Driver(arena)
        driver.recv()
        driver.send()
        driver.recv()
        driver.send()
        driver.recv()
        driver.send()
        with pytest.raises(WorldError) as failure:
            driver.recv()
        text = str(failure.value)
        assert "Walk" in text and "slot 1" in text and str(int(EPISODES(1, 0))) in text
        assert "in event" in text and text.rstrip().endswith("Broken: this very cause")
        assert isinstance(failure.value.__cause__, Broken)
        with pytest.raises(WorldError):
            arena.recv()
    assert len(log.records) == 2


def test_failures_of_different_keys_do_not_add_up() -> None:
    failed = set()

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        if battle.seed not in failed:
            failed.add(battle.seed)
            raise Broken

    with closing(Walk(event=event).arena(2, EPISODES)) as arena:
        Driver(arena).play(60)
    assert len(failed) > 6


@pytest.mark.parametrize("where", ["reset", "enter", "leave", "state", "result"])
def test_a_battle_may_fail_anywhere(where: str, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    world = Walk()
    battle, bad = type(world.reset(0, seed=0)), int(EPISODES(1, 1))
    side = type(world.reset(0, seed=0).controllers[0])
    names = {"enter": (battle, "__aenter__"), "leave": (battle, "__aexit__"), "result": (side, "result")}
    owner, name = names.get(where, (battle, "__init__") if where == "reset" else (side, "state"))
    real, left = getattr(owner, name), [2]

    def seed_of(self: Any, args: tuple[Any, ...]) -> int:
        return int(args[2]) if where == "reset" else int(getattr(self, "battle", self).seed)

    def wrong(self: Any, *args: Any) -> Any:
        if seed_of(self, args) == bad and left[0]:
            left[0] -= 1
            raise Broken(where)
        return real.fget(self) if where == "state" else real(self, *args)

    monkeypatch.setattr(owner, name, property(wrong) if where == "state" else wrong)
    with closing(world.arena(3, EPISODES)) as arena:
        driver = Driver(arena)
        driver.play(30)
    monkeypatch.undo()
    assert [where in record.getMessage() for record in log.records] == [True, True]
    assert [seen[:30] for seen in driver.seen[::2]] == [by_hand(Walk(), slot, 30) for slot in (0, 2)]
    results = [row[5] for row in driver.seen[1] if row[5]]
    assert results[0] == next(row[5] for row in by_hand(Walk(), 1, 30) if row[5])


def test_a_battle_that_cancels_itself_is_a_failure(log: pytest.LogCaptureFixture) -> None:
    left = [1]

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        if left[0]:
            left[0] -= 1
            raise asyncio.CancelledError

    for world in (Walk(event=event), Walk(entered=event)):
        left[0] = 1
        with closing(world.arena(2, EPISODES)) as arena:
            Driver(arena).play(10)
    assert len(log.records) == 2


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, type("OutOfTime", (BaseException,), {})])
@pytest.mark.parametrize("sides", [1, 2])
def test_what_a_signal_raises_within_a_game_comes_out_of_recv(kind: type[BaseException], sides: int) -> None:
    """And the arena can be closed. Nothing raised it again where asyncio had put it, and `recv` waited for ever."""

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        if player == sides - 1:
            raise kind

    with closing(Walk(sides=sides, longest=99, event=event).arena(2 * sides, EPISODES)) as arena:
        with pytest.raises(kind):
            Driver(arena).play(10)
        for _ in range(2):
            with pytest.raises(kind):
                arena.recv()


def test_a_battle_that_fails_before_its_action_takes_it_back_after_it(log: pytest.LogCaptureFixture) -> None:
    """Side 1 breaks the game while side 0 has been shown a state and not answered."""
    left = [1]

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        if player == 1 and left[0]:
            left[0] -= 1
            raise Broken

    with closing(Walk(sides=2, longest=99, event=event).arena(2, EPISODES)) as arena:
        driver = Driver(arena)
        driver.recv()
        driver.send([1])
        now = driver.recv()
        assert now.slots.tolist() == [1] and now.failed == [1] and not now.truncated.any()
        first = now.inputs[0][0].tolist()
        now.inputs[0][0] += 1  # as if no replay could bring it back
        state = arena.state_dict()
        driver.send([0])
        again_from(driver.recv(), first)
    with closing(Walk(sides=2, longest=99).arena(2, EPISODES)) as fresh:
        driver = Driver(fresh)
        fresh.load_state_dict(state)
        now = driver.recv()
        assert now.slots.tolist() == [0, 1] and not now.truncated.any()
        assert (now.inputs[0][0] == np.array(first, np.float32) + 1).all()
        again = fresh.state_dict()
        assert state_equal(again, state)
        driver.send([0])
        again_from(driver.recv(), first)


def again_from(now: Decisions, first: list[float]) -> None:
    """Slot 0 sees nothing of its last decision, and the first state of the next attempt."""
    assert now.slots.tolist() == now.failed == [0]
    assert not now.truncated[0] and not now.terminated[0] and now.reward[0].tolist() == [0, 0]
    assert now.inputs[0][0].tolist() == first


# ------------------------------------------------------------------ background tasks


class Ticking(WalkBattle):
    """A battle whose background task answers everybody, and dies of ``cause`` in the end."""

    cause: Exception | None = None
    living = 0

    async def __aenter__(self) -> Any:
        self.ticks = Ticks()
        self.asked: list[asyncio.Future[None]] = []
        self.ticks.start(self.tick())
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.ticks.__aexit__(*error)

    async def tick(self) -> None:
        Ticking.living += 1
        try:
            for _ in range(5):
                while not self.asked:
                    await asyncio.sleep(0)
                self.asked.pop().set_result(None)
            if self.cause is not None:
                raise self.cause
        finally:
            Ticking.living -= 1


class TickWorld(Walk):
    def reset(self, *players: int, seed: int) -> Ticking:
        return Ticking(self, players, seed)


def ask(battle: Any, player: int, decision: int) -> Any:
    battle.asked.append(battle.ticks.future())
    return battle.asked[-1]


@pytest.mark.parametrize("cause", [Broken("the tick"), None])
def test_a_dead_tick_fails_its_battle(cause: Exception | None, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ticking, "cause", cause)
    with closing(TickWorld(longest=50, event=ask).arena(4, EPISODES)) as arena, pytest.raises(WorldError) as failure:
        Driver(arena).play(100)
    assert isinstance(failure.value.__cause__, Idle if cause is None else Broken)
    assert Ticking.living == 0


def test_leaving_ends_ticks() -> None:
    with closing(TickWorld(longest=5, event=ask).arena(4, EPISODES)) as arena:
        driver = Driver(arena)
        driver.play(3)
        assert Ticking.living == 4
    assert Ticking.living == 0


def test_an_unobserved_tick_failure_is_raised_on_leaving() -> None:
    async def die() -> None:
        raise Broken

    async def play() -> None:
        async with Ticks() as ticks:
            ticks.start(die())
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    with pytest.raises(Broken):
        asyncio.run(play())


# ------------------------------------------------------------------ closing


def test_close_leaves_nothing() -> None:
    world = Walk(sides=2, event=lambda battle, player, decision: asyncio.get_running_loop().create_future())
    arena = world.arena(4, EPISODES)
    assert isinstance(arena, BattleArena)
    driver = Driver(arena)
    driver.recv()
    driver.send([0, 1, 2])
    loop = arena._loop.loop
    arena.close()
    arena.close()
    assert loop.is_closed() and not asyncio.all_tasks(loop)
    assert len(world.left) in (0, 2)  # of those that were entered, all


def test_close_before_anything_ran() -> None:
    Walk().arena(4, EPISODES).close()


def test_closing_an_arena_leaves_the_world_open() -> None:
    closed = []

    class Connected(Walk):
        def close(self) -> None:
            closed.append(self)

    world = Connected()
    world.arena(1, EPISODES).close()
    with closing(world.arena(1, EPISODES)) as arena:  # after an evaluation, say
        assert arena.recv().slots.tolist() == [0]
    assert not closed
    world.close()
    assert closed == [world]
    Walk().close()


# ------------------------------------------------------------------ exact resume


@settings(max_examples=25)
@given(st.integers(1, 40), st.sampled_from([(1, True), (2, True), (2, False)]))
def test_a_restored_arena_goes_on_exactly(decisions: int, kind: tuple[int, bool]) -> None:
    def world() -> Walk:
        return Walk(sides=kind[0], same_length=kind[1])

    with closing(world().arena(4, EPISODES)) as arena, closing(world().arena(4, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.play(decisions)
        state = arena.state_dict()
        fresh.load_state_dict(state)
        other = Driver(fresh)
        now = other.recv()
        assert set(now.slots.tolist()) == driver.waiting and now.cost == 0
        for slot in driver.waiting:
            assert other.seen[slot][0][:2] == driver.seen[slot][-1][:2]
            assert other.seen[slot][0][2:] == [[0, 0], False, False, None, None]
        assert state_equal(fresh.state_dict(), state)
        heads = [list(rows) for rows in driver.seen]
        for slot, rows in enumerate(heads):
            other.seen[slot] = rows  # the actions are keyed by how much was seen
        driver.seen = [list(rows) for rows in heads]
        assert driver.play(decisions + 25) == other.play(decisions + 25)


def state_equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Of nested dictionaries of arrays."""
    return a.keys() == b.keys() and all(
        state_equal(a[name], b[name]) if isinstance(a[name], dict) else np.array_equal(a[name], b[name]) for name in a
    )


@pytest.mark.parametrize("sides", [1, 2])
def test_a_battle_that_fails_in_its_replay_is_replayed_again(sides: int, log: pytest.LogCaptureFixture) -> None:
    """What raises when a state is loaded takes nothing from the world, so the arena goes on exactly."""
    tries = Counter[int]()
    replaying = False

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        if replaying and decision == 1:
            tries[battle.seed] += 1
            if tries[battle.seed] < 3:
                raise Broken

    world = Walk(sides=sides, same_length=False, longest=30, event=event)
    with closing(world.arena(4, EPISODES)) as arena, closing(world.arena(4, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.play(6)
        state = arena.state_dict()
        heads = [list(rows) for rows in driver.seen]
        replaying = True
        fresh.load_state_dict(state)
        replaying = False
        other = Driver(fresh)
        other.recv()
        assert other.waiting == driver.waiting and not any(other.failed)
        other.seen = [list(rows) for rows in heads]
        assert driver.play(20) == other.play(20)
        assert not any(other.failed) and "Broken" in log.text


def test_a_battle_that_cannot_be_replayed_says_why() -> None:
    replaying = False

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        if replaying:
            raise Broken("this very cause")

    world = Walk(event=event, longest=99)
    with closing(world.arena(2, EPISODES)) as arena, closing(world.arena(2, EPISODES)) as fresh:
        Driver(arena).play(3)
        state = arena.state_dict()
        replaying = True
        with pytest.raises(WorldError, match=r"Walk failed 3 times(?s:.*)Broken: this very cause"):
            fresh.load_state_dict(state)


def test_a_slot_that_comes_between_a_load_and_the_next_recv_is_received_later() -> None:
    """The world goes on while evorl loads the rest of a run."""
    held = [True]

    async def event(battle: WalkBattle, player: int, decision: int) -> None:
        while player == 1 and decision == 1 and held[0]:
            await asyncio.sleep(0.01)

    world = Walk(sides=2, longest=99, event=event)
    with closing(world.arena(2, EPISODES)) as arena, closing(world.arena(2, EPISODES)) as fresh:
        driver = Driver(arena)
        for _ in range(2):
            driver.recv()
            driver.send()
        assert driver.recv().slots.tolist() == [0]
        fresh.load_state_dict(arena.state_dict())
        held[0] = False
        time.sleep(0.05)
        assert fresh.recv().slots.tolist() == [0]
        assert fresh.recv().slots.tolist() == [1]


def test_a_decision_in_flight_that_fails_after_a_load_is_taken_back() -> None:
    """Side 1 has acted, side 0 not. The game breaks at that action, once, when the state is in another arena."""
    left = [0]

    async def event(battle: WalkBattle, player: int, decision: int) -> None:
        if player == 1 and decision == 1:
            await asyncio.sleep(0.2)  # longer than side 0 takes on a busy machine
            if left[0]:
                left[0] -= 1
                raise Broken

    world = Walk(sides=2, longest=99, event=event)
    with closing(world.arena(2, EPISODES)) as arena, closing(world.arena(2, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.recv()
        driver.send()
        driver.recv()
        driver.send()
        assert driver.recv().slots.tolist() == [0]  # side 1 is on its way
        fresh.load_state_dict(arena.state_dict())
        assert fresh.recv().slots.tolist() == [0]
        left[0] = 1
        now = fresh.recv()
        assert now.slots.tolist() == now.failed == [1] and not now.reward[1].any()


def test_a_decision_in_flight_that_always_fails_is_taken_back_in_a_load(log: pytest.LogCaptureFixture) -> None:
    """Slot 1 dies of its fifth action, which is in flight when the state is saved, and lives after other ones."""
    deadly: list[float] = []
    slow = True

    async def event(battle: WalkBattle, player: int, decision: int) -> None:
        if battle.seed == int(EPISODES(1, 0)) and decision == 4:
            place = battle.controllers[0].place
            deadly.extend([] if deadly else [place])
            if place == deadly[0]:
                await asyncio.sleep(0.01 * slow)
                raise Broken

    world = Walk(longest=99, event=event)
    with closing(world.arena(2, EPISODES)) as arena, closing(world.arena(2, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.play(5)
        driver.send()
        assert driver.recv().slots.tolist() == [0]
        state, heads = arena.state_dict(), [list(rows) for rows in driver.seen]
        slow = False
        fresh.load_state_dict(state)
        other = Driver(fresh)
        while other.waiting != {0, 1}:
            now = other.recv()
            assert now.failed == [slot for slot in now.slots.tolist() if slot == 1]
        while driver.waiting != {0, 1}:
            driver.recv()
        other.seen, other.failed = [heads[0], [*heads[1], other.seen[1][-1]]], [[], [5]]
        assert driver.play(20) == other.play(20) and driver.failed == other.failed
        assert state_equal(arena.state_dict(), fresh.state_dict())


def test_a_game_that_waits_to_start_again_takes_no_action_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first action of slot 1 fails twice. The state is saved in the pause after that."""
    monkeypatch.setattr("evorl.mdp.restarts.PAUSES_S", (0.0, 0.05))
    _, event = breaks(1, 2, decision=0)
    world = Walk(longest=99, event=event)
    with closing(world.arena(2, EPISODES)) as arena, closing(world.arena(2, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.recv()
        for slots in ([0, 1], [0]):
            driver.send()
            assert driver.recv().slots.tolist() == slots
        fresh.load_state_dict(arena.state_dict())
        other = Driver(fresh)
        while other.waiting != {0, 1}:
            other.recv()
        assert other.failed == [[], [0]] and other.seen[1][0] == driver.seen[1][0]


def test_a_replay_that_goes_on_is_saved_whole() -> None:
    """Slot 1 was in flight when the state was saved, and its replay takes long in the arena that loads it."""
    slow = [False]

    async def event(battle: WalkBattle, player: int, decision: int) -> None:
        if battle.seed == int(EPISODES(1, 0)) and (slow[0] or decision == 3):
            await asyncio.sleep(0.01)

    world = Walk(longest=99, event=event)
    with closing(world.arena(2, EPISODES)) as arena, closing(world.arena(2, EPISODES)) as fresh:
        driver = Driver(arena)
        driver.play(4)
        driver.send()
        assert driver.recv().slots.tolist() == [0]
        state = arena.state_dict()
        slow[0] = True
        fresh.load_state_dict(state)
        assert fresh.recv().slots.tolist() == [0]
        assert state_equal(fresh.state_dict(), state)


def test_a_running_arena_can_load_an_earlier_state() -> None:
    with closing(Walk().arena(3, EPISODES)) as arena:
        driver = Driver(arena)
        driver.play(7)
        state, seen = arena.state_dict(), [list(rows) for rows in driver.seen]
        expected = driver.play(20)
        arena.load_state_dict(state)
        driver = Driver(arena)
        driver.recv()
        driver.seen = seen
        assert driver.play(20) == expected


def test_a_world_that_does_not_repeat_itself_cannot_be_resumed() -> None:
    count = [0]

    def event(battle: WalkBattle, player: int, decision: int) -> None:
        count[0] += 1
        battle.controllers[0].place += count[0]

    with closing(Walk(longest=99, event=event).arena(3, EPISODES)) as arena:
        Driver(arena).play(5)
        with pytest.raises(WorldError, match="Walk, slot 0: replaying"):
            arena.load_state_dict(arena.state_dict())


def test_a_state_of_other_slots_is_refused() -> None:
    with closing(Walk().arena(3, EPISODES)) as arena, closing(Walk().arena(2, EPISODES)) as other:
        arena.recv()
        with pytest.raises(ValueError, match="3 slots, the arena has 2"):
            other.load_state_dict(arena.state_dict())


def test_failures_are_remembered(log: pytest.LogCaptureFixture) -> None:
    _, event = breaks(0, 3, decision=0)
    world = Walk(event=event)
    with closing(world.arena(1, EPISODES)) as arena, closing(world.arena(1, EPISODES)) as fresh:
        driver = Driver(arena)
        for _ in range(2):
            driver.recv()
            driver.send()
        driver.recv()
        fresh.load_state_dict(arena.state_dict())
        driver = Driver(fresh)
        driver.recv()
        driver.send()
        with pytest.raises(WorldError):
            driver.recv()
