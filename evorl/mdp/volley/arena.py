"""G games of slime volleyball in lockstep; see `evorl.mdp.team_games` for the letters in shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.team_games import TeamGames
from evorl.mdp.volley import baseline
from evorl.mdp.volley.drawing import draw_game
from evorl.mdp.volley.rules import STATE, Games, advance, begin, observe
from evorl.util import seed as seeds
from evorl.util.saved import restore, saved
from evorl.util.seed import Episodes
from evorl.util.types import StateDict

if TYPE_CHECKING:
    from evorl.mdp.volley.world import Volley

RANDOM_PLAYER = 2**32  # the random players' first draw: 2^32 + 2t + side after t steps


class VolleyArena(TeamGames):
    """A team is one slime. A side that takes a negative action is played by the baseline."""

    def __init__(self, world: Volley, slots: int, episodes: Episodes) -> None:
        super().__init__(
            world.spec, slots, world.sides, world.opponent == "self", episodes, world.learner_teams, world.see_side
        )
        self.world, self.games = world, Games(self.count)
        self._outputs = np.zeros((self.count, 2, baseline.UNITS))  # of the baseline, had it played from the start
        self._start()

    def _begin(self, which: Array) -> None:
        begin(self.world, self.games, which, self.keys[which])
        self._outputs[which] = 0

    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        games = self.games
        if self.both:
            chosen = actions[:, :, 0].copy()
        else:
            chosen = np.full((self.count, 2), -1)
            chosen[np.arange(self.count), self.team] = actions[:, 0, 0]
            if self.world.opponent == "random":
                counters = RANDOM_PLAYER + 2 * games.time + 1 - self.team
                chosen[np.arange(self.count), 1 - self.team] = np.floor(6 * seeds.uniform(self.keys, counters))
        game, side = np.nonzero(chosen < 0)
        if len(game):
            chosen[game, side], self._outputs[game, side] = baseline.step(
                observe(games)[game, side], self._outputs[game, side]
            )
        point = advance(self.world, games, chosen.T)
        over = (games.lives == 0).any(0)
        return point[:, None], over, ~over & (games.time >= self.world.time_limit)

    def _seen(self) -> Array:
        return observe(self.games)[:, :, None]

    def _results(self, game: int) -> tuple[dict[str, float], dict[str, float]]:
        left, right = self.games.lives[:, game].tolist()
        return result(left - right, self.world.lives), result(right - left, self.world.lives)

    def render(self, slot: int = 0) -> Array:
        return draw_game(self.world, self.games, slot // self.sides)

    def _state(self) -> StateDict:
        return {**saved(self.games, STATE), "outputs": self._outputs.copy()}

    def _load(self, state: StateDict) -> None:
        restore(self.games, STATE, state)
        self._outputs[...] = state["outputs"]


def result(lead: int, lives: int) -> dict[str, float]:
    """The results of a side that has ``lead`` more lives than the other one."""
    return {
        "score": float(lead),
        "win": 0.5 + 0.5 * ((lead > 0) - (lead < 0)),
        "fitness": (lead + lives) / (2 * lives),
    }
