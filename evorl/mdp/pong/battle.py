"""One game of Pong as a battle, one coroutine per side; bit-identical to the arena."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import numpy as np

from evorl.mdp.battle_side import BattleSide
from evorl.mdp.core import Array, State, Step
from evorl.mdp.pong.drawing import draw_game
from evorl.mdp.pong.match import Match, Opponent
from evorl.mdp.pong.rules import DOWN, STAY, UP, Behaviour, Rules

RULE = -1  # the action that leaves a move to the rule player, in games with two players


class PongBattle:
    """One episode. When the last controlled side has acted, the game advances and both sides continue.

    ``opponent`` plays a side that is not in ``players``. Raises ValueError for invalid players.
    """

    def __init__(self, rules: Rules, opponent: Opponent, players: tuple[int, ...], seed: int) -> None:
        if not players or len(set(players)) != len(players) or not {0, 1}.issuperset(players):
            raise ValueError(f"Pong has the sides 0 and 1, not {list(players)}")
        if opponent == "self" and len(players) < 2:
            raise ValueError("opponent=self needs both sides as players")
        self._match = Match(
            rules, opponent, np.array([seed], np.uint64), np.zeros(len(players), np.int64), np.array(players)
        )
        self._actions: dict[int, int] = {}  # of the current step, by player
        self._steps: asyncio.Future[list[Step]] | None = None  # outcome of the current step for each player
        self.over = False
        self.controllers = [BattleSide(self, player) for player in range(len(players))]

    async def __aenter__(self) -> Self:
        self._steps = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._steps is not None:
            self._steps.cancel()

    async def act(self, player: int, action: int) -> Step:
        """Take the player's action. Raises RuntimeError if it cannot act now, ValueError for an invalid action."""
        if self._steps is None or self.over or player in self._actions:
            raise RuntimeError(
                f"player {player} cannot act now: the battle is not entered, is over, or has acted already"
            )
        if action not in (UP, STAY, DOWN) and not (action == RULE and len(self.controllers) == 2):
            raise ValueError(f"Pong has the actions {UP}, {STAY} and {DOWN}, not {action}")
        self._actions[player] = action
        steps = self._steps
        if len(self._actions) == len(self.controllers):
            self._advance(steps)
        return (await asyncio.shield(steps))[player]  # cancelling one side does not cancel the other

    def _advance(self, steps: asyncio.Future[list[Step]]) -> None:
        self._steps = steps.get_loop().create_future()
        players = self._match.players
        actions = np.array([self._actions[player] for player in range(len(self.controllers))])
        self._actions.clear()
        _, point = self._match.advance(actions)
        players.update_view(self._match.games)
        self.over = bool(self._match.games.round[0] >= self._match.rules.rounds)
        reward = point.sum() * (1.0 - 2.0 * players.side)  # [players]; no round ended: 0
        if self._match.rules.reward != Behaviour():
            reward += players.behaviour(self._match.rules.reward)
        steps.set_result([Step(reward[player : player + 1], terminated=self.over) for player in range(len(reward))])

    def state(self, player: int) -> State:
        return State((self._match.players.view[player].copy(),))

    def result(self, player: int) -> dict[str, float]:
        return self._match.results(np.array([player]))[0]

    def render(self) -> Array:
        return draw_game(self._match.rules, self._match.games, 0)
