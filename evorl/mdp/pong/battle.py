"""One game of Pong as a battle: the same rules and the same numbers as in the arena, one coroutine a side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import numpy as np

from evorl.mdp.core import Array, State, Step
from evorl.mdp.pong.match import Match, Opponent
from evorl.mdp.pong.picture import picture
from evorl.mdp.pong.rules import DOWN, STAY, UP, Behaviour, Rules


class PongBattle:
    """An episode in lockstep: the asked side that acts last advances the game and wakes the other one.

    ``opponent`` decides for a side that is not asked. Raises ValueError for impossible players.
    """

    def __init__(self, rules: Rules, opponent: Opponent, players: tuple[int, ...], seed: int) -> None:
        if not players or len(set(players)) != len(players) or not {0, 1}.issuperset(players):
            raise ValueError(f"Pong has the sides 0 and 1, not {list(players)}")
        if opponent == "self" and len(players) < 2:
            raise ValueError("opponent=self leaves no side to the world: ask for both")
        self._match = Match(
            rules, opponent, np.array([seed], np.uint64), np.zeros(len(players), np.int64), np.array(players)
        )
        self._actions: dict[int, int] = {}  # of this step, by seat
        self._steps: asyncio.Future[list[Step]] | None = None  # what this step will bring to each seat
        self.over = False
        self.controllers = [PongSide(self, seat) for seat in range(len(players))]

    async def __aenter__(self) -> Self:
        self._steps = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._steps is not None:
            self._steps.cancel()

    async def act(self, seat: int, action: int) -> Step:
        """Raises RuntimeError when it is not this seat's turn, ValueError for an action that does not exist."""
        if self._steps is None or self.over or seat in self._actions:
            raise RuntimeError(f"seat {seat} cannot act now: the battle is not entered, over, or it has acted already")
        if action not in (UP, STAY, DOWN):
            raise ValueError(f"Pong has the actions {UP}, {STAY} and {DOWN}, not {action}")
        self._actions[seat] = action
        steps = self._steps
        if len(self._actions) == len(self.controllers):
            self._advance(steps)
        return (await asyncio.shield(steps))[seat]  # one side's cancellation is not the other's

    def _advance(self, steps: asyncio.Future[list[Step]]) -> None:
        self._steps = steps.get_loop().create_future()
        seats = self._match.seats
        actions = np.array([self._actions[seat] for seat in range(len(self.controllers))])
        self._actions.clear()
        _, point = self._match.advance(actions)
        seats.look(self._match.games)
        self.over = bool(self._match.games.round[0] >= self._match.rules.rounds)
        reward = point.sum() * (1.0 - 2.0 * seats.side)  # [seats]; no round ended: 0
        if self._match.rules.reward != Behaviour():
            reward += seats.behaviour(self._match.rules.reward)
        steps.set_result([Step(reward[seat : seat + 1], terminated=self.over) for seat in range(len(reward))])

    def state(self, seat: int) -> State:
        return State((self._match.seats.view[seat].copy(),))

    def result(self, seat: int) -> dict[str, float]:
        return self._match.results(np.array([seat]))[0]

    def render(self) -> Array:
        return picture(self._match.rules, self._match.games, 0)


class PongSide:
    """The controller of one side."""

    def __init__(self, battle: PongBattle, seat: int) -> None:
        self._battle, self._seat = battle, seat

    @property
    def state(self) -> State:
        return self._battle.state(self._seat)

    async def __call__(self, action: Array) -> Step:
        return await self._battle.act(self._seat, int(action[0]))

    def result(self) -> Mapping[str, float]:
        return self._battle.result(self._seat)
