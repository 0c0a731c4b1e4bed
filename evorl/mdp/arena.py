"""Many battles on one event loop, seen as one Arena.

Every asked side of every battle is a coroutine that shows its state, waits for an answer,
acts and comes back. `BattleArena.recv` runs the loop until somebody waits and nothing else
can run at once; between two calls the loop stands still, so rows never change under the reader.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import traceback
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evorl.mdp.core import (
    MDP,
    Arena,
    Array,
    Battle,
    Controller,
    Decisions,
    Filmed,
    Spec,
    State,
    StateDict,
    Step,
    World,
    WorldError,
)
from evorl.mdp.delay import Delayed
from evorl.mdp.event_loop import QuietLoop
from evorl.mdp.rows import action_form, blank, restore_seen, saved_seen, seen, show, show_final
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes
from evorl.util.types import NonNegative

LOG = logging.getLogger("evorl")
FAILURES = 3
"""An episode that failed this often under one key stops the run."""


@dataclass(frozen=True, kw_only=True)
class BattleWorld(World):
    """A world written as battles: an author gives `spec` and `reset`, and `players` where the default is wrong."""

    delay_ms: tuple[NonNegative, NonNegative] | None = None
    """Wall time [low, high] in ms that every decision takes; null for none."""

    def __post_init__(self) -> None:
        if self.delay_ms is not None and not 0 <= self.delay_ms[0] <= self.delay_ms[1]:
            raise BadRequest(f"expected [low, high] with 0 <= low <= high, got {list(self.delay_ms)}", "delay_ms")

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The interface of one side."""

    @abstractmethod
    def reset(self, *players: int, seed: int) -> Battle:
        """Begin an episode in which the caller decides for ``players`` and the world drives the other sides."""

    def players(self, seed: int) -> tuple[int, ...]:
        """The sides the learner decides for in the episode with this key; always as many. All of them by default."""
        return tuple(range(self.spec.players))

    @property
    def sides(self) -> int:
        return len(self.players(0))

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        mdp = self if self.delay_ms is None else Delayed(self, self.delay_ms)
        return BattleArena(mdp, slots, episodes, self.players)


@dataclass
class _Game:
    """One place for a battle: its slots, and which of their episodes is on."""

    index: int
    slots: range
    number: int = 0
    failures: int = 0  # of the present episode
    battle: Battle | None = None


@dataclass(slots=True)
class _Seat:
    """What the arena keeps for one slot."""

    answer: asyncio.Future[Array]
    waits: bool = False  # shown, and not answered yet
    shown: bool = False  # has seen a state of the present attempt at its episode
    broken: bool = False  # its last attempt failed after it was shown
    cost: int = 0
    result: dict[str, float] | None = None
    log: bytearray = field(default_factory=bytearray)  # the episode's actions so far
    feed: list[Array] = field(default_factory=list)  # actions still to be replayed, last first


class BattleArena(Filmed):
    """Arena over the battles of an MDP.

    The learner decides for ``players(key)`` in the episode with that key, always P sides (side 0 alone by
    default). Game g holds slots g*P .. g*P+P-1 and plays the keys episodes(g, 0), episodes(g, 1), ...
    Environment steps are counted at each game's first held side.

    A battle that raises is started again under the same key; the learner sees a truncation at the last state
    it was shown, with no reward and no results. `recv` raises `WorldError` when one key failed three times.
    A side that ends before the other sides of its game is returned when the next game has begun.

    `state_dict` may be called after any `recv`, also while some slots do not wait: their last action is then
    in flight, and is taken again after loading. Raises `BadRequest` when slots is not a multiple of P.
    """

    def __init__(
        self, mdp: MDP, slots: int, episodes: Episodes, players: Callable[[int], tuple[int, ...]] = lambda seed: (0,)
    ) -> None:
        self.spec, self.slots = mdp.spec, slots
        self._mdp, self._episodes, self._players = mdp, episodes, players
        self.sides = len(players(int(episodes(0, 0))))
        if slots < 1 or slots % self.sides:
            raise BadRequest(f"{slots} slots cannot be shared by games in which we hold {self.sides} sides", "rl.slots")
        self._rows = blank(self.spec, slots)
        self._dtype, self._width = action_form(self.spec.action)
        self._fresh: list[int] = []  # slots that began to wait since the last recv
        self._early: list[int] = []  # slots in flight when saved that came back while a load replayed the others
        self._failure: WorldError | None = None
        self._quiet = QuietLoop(self._stalled)
        self._begin()

    # -------------------------------------------------------------- the Arena

    def recv(self) -> Decisions:
        if self._failure is None and not self._fresh and all(seat.waits for seat in self._seats):
            raise RuntimeError("every slot waits for an answer: send before the next recv")
        self._run(self._fresh.__len__)
        fresh, rows = sorted(self._fresh), self._rows
        self._fresh[:], self._early = self._early, []
        rows.slots = np.array(fresh, np.int64)
        rows.cost = sum(self._seats[slot].cost for slot in fresh if slot % self.sides == 0)
        rows.results = []
        for slot in fresh:
            seat = self._seats[slot]
            if seat.result is not None:
                rows.results.append((slot, seat.result))
                seat.result = None
        return rows

    def send(self, slots: Array, actions: Array) -> None:
        """Raises ValueError for a slot that does not wait."""
        rows = self._rows
        rows.terminated[slots] = rows.truncated[slots] = False
        actions = np.array(actions, self._dtype)  # a copy: the caller may use its array again
        seats = self._seats
        for slot, action in zip(slots.tolist(), actions, strict=True):
            seat = seats[slot]
            if not seat.waits:
                raise ValueError(f"slot {slot} does not wait for an answer")
            seat.waits = False
            if not seat.answer.done():  # cancelled where the battle broke meanwhile
                seat.answer.set_result(action)

    def render(self, slot: int = 0) -> Array | None:
        draw = getattr(self._games[slot // self.sides].battle, "render", None)
        return None if draw is None else draw()

    def state_dict(self) -> StateDict:
        broken = np.array([seat.broken for seat in self._seats], np.bool_)
        logs = [np.frombuffer(bytes(seat.log), self._dtype).reshape(-1, self._width) for seat in self._seats]
        return {
            "episode": np.array([game.number for game in self._games], np.int64),
            "failures": np.array([game.failures for game in self._games], np.int64),
            "waits": np.array([seat.waits and s not in self._fresh for s, seat in enumerate(self._seats)], np.bool_),
            "broken": broken,
            "seen": saved_seen(self._rows, np.flatnonzero(broken)),
            "digest": np.array([self._digest(slot) for slot in range(self.slots)], np.int64),
            "lengths": np.array([len(log) for log in logs], np.int64),
            "actions": np.concatenate(logs),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for a state of another number of slots, `WorldError` when a replay leads elsewhere."""
        waits = np.asarray(state["waits"])
        if len(waits) != self.slots or len(state["episode"]) != len(self._games):
            raise ValueError(f"the state is of {len(waits)} slots, the arena has {self.slots}")
        self._end_games()
        self._begin()
        for game, number, failures in zip(self._games, state["episode"], state["failures"], strict=True):
            game.number, game.failures = int(number), int(failures)
        for seat, log in zip(self._seats, np.split(state["actions"], np.cumsum(state["lengths"])[:-1]), strict=True):
            seat.feed = list(log[::-1])
        self._load_broken(state, waits)
        slots = np.flatnonzero(waits).tolist()
        if slots:
            self._run(lambda: sum(self._seats[slot].waits for slot in slots), len(slots))
        self._compare(slots, state["digest"])
        self._early = [slot for slot in self._fresh if not waits[slot]]
        self._fresh[:] = slots
        self._forget(slots)

    def close(self) -> None:
        if self._quiet.loop.is_closed():
            return
        self._end_games()
        self._quiet.close()  # the world stays open: other arenas share it

    # -------------------------------------------------------------- running the loop

    def _run(self, score: Callable[[], int], target: int = 1) -> None:
        """Run until so many slots wait. Raises the world's failure."""
        if self._failure is None:
            self._quiet.run(score, target)
        if self._failure is not None:
            raise self._failure

    def _stalled(self, wakeable: bool) -> None:
        """Warn that no battle goes on, or raise where none ever could."""
        held = [slot for slot, seat in enumerate(self._seats) if seat.waits]
        text = f"no battle of {_name(self._mdp)} goes on" + (f": the slots {held} were not answered" if held else "")
        if not wakeable:
            raise RuntimeError(text)
        LOG.warning("%s; waiting for the world", text)

    def _begin(self) -> None:
        rows, sides = self._rows, self.sides
        rows.reward[:] = 0
        rows.terminated[:] = rows.truncated[:] = False
        self._fresh.clear()
        self._early.clear()
        self._failure = None
        self._leaving = False
        self._seats = [_Seat(self._quiet.loop.create_future()) for _ in range(self.slots)]
        self._games = [_Game(g, range(g * sides, (g + 1) * sides)) for g in range(self.slots // sides)]
        self._tasks = [self._quiet.loop.create_task(self._play(game)) for game in self._games]

    def _end_games(self) -> None:
        """Cancel the games, then whatever their battles left behind."""
        self._leaving = True
        self._quiet.cancel(self._tasks)
        for task in self._quiet.cancel(asyncio.all_tasks(self._quiet.loop)):
            LOG.warning("a task of %s does not end when cancelled: %r", _name(self._mdp), task)

    # -------------------------------------------------------------- playing

    async def _play(self, game: _Game) -> None:
        """Episode after episode at one place."""
        while True:
            try:
                await self._episode(game)
            except (Exception, asyncio.CancelledError) as error:
                if self._leaving or self._failed(game, error):
                    return
            else:
                game.number, game.failures = game.number + 1, 0
                for slot in game.slots:
                    self._seats[slot].shown = False

    async def _episode(self, game: _Game) -> None:
        for slot in game.slots:
            self._seats[slot].log.clear()
        key = self._key(game)
        async with self._mdp.reset(*self._players(key), seed=key) as game.battle:
            pairs = zip(game.slots, game.battle.controllers, strict=True)
            await _together([self._side(slot, controller) for slot, controller in pairs])
            self._ended()

    async def _side(self, slot: int, controller: Controller) -> None:
        """One side of one episode. The loop below runs once per decision: what it calls is bound beforehand."""
        seat, rows, log = self._seats[slot], self._rows, self._seats[slot].log
        wait, fresh, reward = self._quiet.loop.create_future, self._fresh, self._rows.reward
        again = getattr(controller, "at_once", controller)  # replays need not be slow
        if seat.broken:
            await self._cut(slot, seat)
        length = 0  # environment steps
        while True:
            state = controller.state
            if seat.feed:
                action, act = self._again(slot, seat, state), again
            else:
                show(rows, slot, state)
                seat.answer = answer = wait()
                seat.waits = seat.shown = True
                fresh.append(slot)
                action, act = await answer, controller
            log += action.tobytes()
            step = await act(action)
            reward[slot] = step.reward
            seat.cost = step.cost
            length += step.cost
            if step.terminated or step.truncated:
                return self._end(slot, seat, controller, step, length)

    def _again(self, slot: int, seat: _Seat, state: State) -> Array:
        """The next action of a log that is replayed; what its last one answered is what the slot was shown."""
        if len(seat.feed) == 1:
            show(self._rows, slot, state)
            seat.shown = True
        return seat.feed.pop()

    def _end(self, slot: int, seat: _Seat, controller: Controller, step: Step, length: int) -> None:
        rows, truncated = self._rows, step.truncated and not step.terminated  # what is over is not cut
        rows.terminated[slot], rows.truncated[slot] = step.terminated, truncated
        if truncated:
            show_final(rows, slot, controller.state)
        seat.result = {"length": float(length), **controller.result()}
        seat.feed.clear()

    # -------------------------------------------------------------- when a battle breaks

    def _failed(self, game: _Game, error: BaseException) -> bool:
        """Note that the episode broke; True when it did so once too often."""
        game.failures += 1
        key, slot = self._key(game), game.slots[0]
        for seat in (self._seats[slot] for slot in game.slots):
            seat.broken, seat.shown = seat.broken or seat.shown, False
            seat.feed.clear()
        if game.failures < FAILURES:
            LOG.warning("%s, slot %d, key %d: starting the episode again after %r", _name(self._mdp), slot, key, error)
            return False
        trace = "".join(traceback.format_exception(error))
        self._failure = WorldError(
            f"{_name(self._mdp)} failed {FAILURES} times in the episode of slot {slot} with key {key}:\n{trace}"
        )
        self._failure.__cause__ = error
        self._quiet.loop.stop()
        return True

    async def _cut(self, slot: int, seat: _Seat) -> None:
        """Show the broken episode as truncated where it was last seen, once its open question is answered."""
        if seat.waits:
            seat.answer = self._quiet.loop.create_future()
            await seat.answer
        rows = self._rows
        seat.broken, seat.result, seat.cost = False, None, 0
        rows.reward[slot] = 0
        rows.terminated[slot], rows.truncated[slot] = False, True
        show_final(rows, slot, seen(rows, slot))

    # -------------------------------------------------------------- exact resume

    def _digest(self, slot: int) -> int:
        """A hash of what the slot was shown; 0 where that belongs to a broken attempt, which no replay repeats."""
        seat = self._seats[slot]
        if not seat.waits or seat.broken:
            return 0
        digest = hashlib.blake2b(digest_size=7)
        for value in seen(self._rows, slot).inputs:
            digest.update(value.tobytes())
        return int.from_bytes(digest.digest(), "little")

    def _load_broken(self, state: StateDict, waits: Array) -> None:
        """Slots of broken attempts go on from what they were shown, which no replay brings back."""
        broken = np.flatnonzero(state["broken"])
        restore_seen(self._rows, broken, state["seen"])
        for slot in broken.tolist():
            self._seats[slot].broken, self._seats[slot].waits = True, bool(waits[slot])

    def _compare(self, slots: list[int], digests: Array) -> None:
        for slot in slots:
            if digests[slot] and self._digest(slot) != digests[slot]:
                raise WorldError(
                    f"{_name(self._mdp)}, slot {slot}: replaying the episode led to another state; "
                    "only a world that repeats itself for the same seed and actions can be resumed"
                )

    def _forget(self, slots: list[int]) -> None:
        """Make the given slots' rows those of decisions that were received before."""
        self._rows.reward[slots] = 0
        self._rows.terminated[slots] = self._rows.truncated[slots] = False
        for slot in slots:
            self._seats[slot].cost, self._seats[slot].result = 0, None

    def _key(self, game: _Game) -> int:
        return int(self._episodes(game.index, game.number))


async def _together(sides: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines until all returned or one failed, which is raised; none is left running."""
    tasks = [asyncio.ensure_future(side) for side in sides]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.cancelled():
                raise RuntimeError("the battle cancelled one of its own sides")
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _name(mdp: MDP) -> str:
    return type(mdp.mdp if isinstance(mdp, Delayed) else mdp).__name__
