"""One game of football as a battle: a coroutine for each side that the caller decides for.

The built-in player plays a side that nobody decides for. The engine runs in a process of its own. When that ends within
a game, another one plays the game again up to there, which takes the same seed and actions to the same state. If that
one ends too before it has come there, the game is truncated in the state before.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from evorl.mdp.battle_side import BattleSide
from evorl.mdp.core import Array, State, Step
from evorl.mdp.football.arena import result
from evorl.mdp.football.drawing import draw
from evorl.mdp.football.engine import ACTIONS, BEGIN, EVEN, LEFT, REVERSED, RIGHT, RULE, STEP
from evorl.mdp.football.frame import GOES_ON, OVER, checkpoints, picture, seen_by, simple115
from evorl.mdp.football.process import POOLS, Ended, GameProcess
from evorl.util.seed import mix, seed31

if TYPE_CHECKING:
    from evorl.mdp.football.world import Football

LOG = logging.getLogger("evorl")
SEES = {"pictures": picture, "simple115": simple115}


class FootballBattle:
    """One episode. When the last of ``players`` has acted, the game advances by a step.

    Results: see `evorl.mdp.football.arena.FootballArena`. Raises ValueError for invalid players.
    """

    def __init__(self, world: Football, players: tuple[int, ...], seed: int) -> None:
        if not players or len(set(players)) != len(players) or not {0, 1}.issuperset(players):
            raise ValueError(f"football has the sides 0 and 1, not {list(players)}")
        self._world, self._sides, self._seed = world, players, seed
        self._pool = POOLS[world.scenario]
        self._process: GameProcess | None = None
        self._log: list[tuple[int, int]] = []  # the actions of both sides in each step
        self._actions: dict[int, int] = {}  # of the present step, by side
        self._steps: asyncio.Future[dict[int, Step]] | None = None
        self._paid = [0, 0]  # checkpoints, by side
        self.over = False
        self.controllers = [BattleSide(self, side) for side in players]

    async def __aenter__(self) -> Self:
        self._steps = asyncio.get_running_loop().create_future()
        try:
            self.frame = await self._begin()
        except BaseException:  # then nobody leaves the battle
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._steps is not None:
            self._steps.cancel()
        self._leave()

    async def act(self, side: int, action: int) -> Step:
        """Take a side's action. Raises RuntimeError if it cannot act now, ValueError for an invalid action."""
        if self._steps is None or self.over or side in self._actions:
            raise RuntimeError(f"side {side} cannot act now: the battle is not entered, is over, or has acted already")
        if not RULE <= action < len(ACTIONS):
            raise ValueError(f"football has the actions 0 to {len(ACTIONS) - 1}, not {action}")
        self._actions[side], steps = action, self._steps
        if len(self._actions) == len(self._sides):
            try:
                await self._advance(steps)
            except BaseException as error:
                if not steps.done():
                    steps.set_exception(error)
                    steps.exception()  # marks it as retrieved, in case no other side awaits it
                raise
        return (await asyncio.shield(steps))[side]  # cancelling one side does not cancel the other

    async def _advance(self, steps: asyncio.Future[dict[int, Step]]) -> None:
        before = self.frame
        self._log.append((self._actions.get(0, RULE), self._actions.get(1, RULE)))
        after = await self._step()
        self._steps = steps.get_loop().create_future()
        self._actions.clear()
        crashed = after is None
        self.frame = before if after is None else after
        terminated = self.frame["over"] == OVER
        late = crashed or self.frame["over"] != GOES_ON or len(self._log) >= self._world.longest_episode
        self.over = bool(terminated or late)
        steps.set_result({
            side: Step(self._reward(side, before), bool(terminated), bool(late and not terminated))
            for side in self._sides
        })  # fmt: skip

    def _reward(self, side: int, before: Array) -> Array:
        seen = seen_by(self.frame, side)
        own, other = seen["score"] - seen_by(before, side)["score"]
        scored = own - other
        named = {"scoring": float(scored)}
        if "checkpoints" in self._world.rewards:
            named["checkpoints"], self._paid[side] = checkpoints(seen, scored == 1, self._paid[side])
        return np.array([named[name] for name in self._world.rewards], np.float32)

    def state(self, side: int) -> State:
        return State((SEES[self._world.observation](seen_by(self.frame, side)),))

    def result(self, side: int) -> dict[str, float]:
        own, other = seen_by(self.frame, side)["score"].tolist()
        return result(own, other, length=len(self._log))

    def render(self) -> Array:
        return draw(picture(self.frame))

    # -------------------------------------------------------------- the engine

    async def _begin(self) -> Array:
        """Begin the game in a process, or in a new one if that has played before and ends now. Raises `Ended`."""
        bits = int(mix(np.asarray(self._seed, np.uint64)))
        flags = (LEFT if 0 in self._sides else 0) | (RIGHT if 1 in self._sides else 0)
        flags |= (REVERSED if bits & 1 else 0) | (EVEN if bits & 2 else 0)
        request = BEGIN, seed31(self._seed), flags, 0, 0
        self._process = process = self._pool.take()
        try:
            return await self._ask(*request)
        except Ended as error:
            if not process.used:
                raise
            LOG.warning("%s; a new one begins the game", error)
        self._process = self._pool.start()
        return await self._ask(*request)

    async def _step(self) -> Array | None:
        """Play the last step of the log. Return None if the engine ends, and again before a replay is there."""
        try:
            return await self._ask(STEP, 0, 0, *self._log[-1])
        except Ended as error:
            LOG.warning("%s; the game is played again up to there", error)
        try:
            frame = await self._begin()
            for actions in self._log:
                frame = await self._ask(STEP, 0, 0, *actions)
            return frame
        except Ended as error:
            LOG.warning("%s while the game was played again: it is truncated", error)
            return None

    async def _ask(self, *request: int) -> Array:
        assert self._process is not None
        try:
            return await self._process.ask(*request)
        except Ended:
            self._drop()
            raise

    def _leave(self) -> None:
        if self._process is not None:
            self._pool.give_back(self._process)
            self._process = None

    def _drop(self) -> None:
        assert self._process is not None
        self._process.close()
        self._process = None
