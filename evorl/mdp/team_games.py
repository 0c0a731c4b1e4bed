"""An arena of games between two teams that step together, for worlds that compute many games in arrays.

Letters in shapes: G games, S sides of a team, R rewards, F numbers of an observation. A game has P slots: S if the
learner plays one team of it, 2S if it plays both; then the first S are those of team 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from evorl.mdp.core import Array, Closes, Decisions, EpisodeEndHook, ResultsSoFar, Spec, StepsTogether
from evorl.mdp.decision_arrays import empty_decisions
from evorl.util import seed as seeds
from evorl.util.seed import Episodes
from evorl.util.types import StateDict

Side = Literal["random", "left", "right"]
TEAMS = np.array([-1.0, 1.0], np.float32).reshape(1, 2, 1, 1)
"""What shows a side its team, if it sees it."""


class TeamGames(EpisodeEndHook, StepsTogether, ResultsSoFar, Closes):
    """Every `recv` returns all slots, and every `send` needs actions for all.

    A game gives `_begin`, `_advance`, `_seen`, `_results`, `_state` and `_load`. Call `_start` once they can be called.
    """

    def __init__(
        self, spec: Spec, slots: int, sides: int, both: bool, episodes: Episodes, teams: Callable[[Array], Array],
        see_side: bool = False,
    ) -> None:  # fmt: skip
        """``both``: the learner plays both teams, else team ``teams(keys)`` [G] in the episodes with these keys.

        ``see_side``: an observation ends with the team, see `with_side`.
        """
        self.see_side = see_side
        self.spec, self.slots, self.sides, self.both = spec, slots, sides, both
        self.count = slots // sides
        self._episodes, self._teams = episodes, teams
        self._episode = np.zeros(self.count, np.int64)
        self._take_keys()
        self._decisions = empty_decisions(spec, slots)
        self._decisions.slots = np.arange(slots)

    def _start(self) -> None:
        self._begin(np.arange(self.count))
        self._show()

    def _take_keys(self) -> None:
        self.keys = self._episodes(np.arange(self.count), self._episode)
        self.team = self._teams(self.keys)  # the learner's; 0 where it plays both

    # -------------------------------------------------------------- what a game gives

    @abstractmethod
    def _begin(self, which: Array) -> None:
        """Begin the episodes of the games ``which`` [n] with their keys."""

    @abstractmethod
    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        """One step of every game under the learner's actions: [G, S, K], or of both teams [G, 2S, K].

        Return the rewards of team 0, [G, R], of which team 1 has the negative, and whether the game is terminated, and
        whether it is truncated, [G].
        """

    @abstractmethod
    def _seen(self) -> Array:
        """What every side of both teams observes, [G, 2, S, F]."""

    @abstractmethod
    def _results(self, game: int) -> tuple[dict[str, float], dict[str, float]]:
        """The results of both teams in a game that has ended."""

    @abstractmethod
    def _state(self) -> StateDict:
        """The state of all games."""

    @abstractmethod
    def _load(self, state: StateDict) -> None:
        """Continue from a state. Raises ValueError for one of another number of games."""

    # -------------------------------------------------------------- the arena

    def recv(self) -> Decisions:
        """Return all slots; the same until `send`."""
        return self._decisions

    def send(self, slots: Array, actions: Array) -> None:
        """Advance every game by one step. Raises ValueError unless ``slots`` is all slots, ascending."""
        if len(slots) != self.slots:
            raise ValueError(f"the games advance all {self.slots} slots together, got actions for {len(slots)}")
        reward, over, cut = self._advance(actions.reshape(self.count, self.sides, -1))
        self._clear(self.count)
        signs = np.array([[1, -1]]) if self.both else (1 - 2 * self.team)[:, None]
        shared = (reward[:, None] * signs[:, :, None]).repeat(self.sides // signs.shape[1], 1)
        self._decisions.reward[:] = shared.reshape(self.slots, -1)
        self._decisions.terminated[:] = over.repeat(self.sides)
        self._decisions.truncated[:] = cut.repeat(self.sides)
        if cut.any():
            self._decisions.final[0][:] = self._shown()
        if (ended := over | cut).any():
            self._restart(np.flatnonzero(ended))
        self._show()

    def _clear(self, cost: int) -> None:
        decisions = self._decisions
        decisions.reward.fill(0)
        decisions.terminated.fill(False)
        decisions.truncated.fill(False)
        decisions.results, decisions.cost = [], cost

    def _restart(self, which: Array) -> None:
        """End the episodes of these games and start their next ones."""
        self._notify_episode_end()
        for game in which.tolist():
            results = self._results(game)
            for side in range(self.sides):
                row = game * self.sides + side
                self._decisions.results.append((row, results[self._team(row)]))
        self._episode[which] += 1
        self._take_keys()
        self._begin(which)

    def _team(self, slot: int) -> int:
        """The team of a slot in its game's present episode."""
        game, side = divmod(slot, self.sides)
        return side // (self.sides // 2) if self.both else int(self.team[game])

    def results_so_far(self, slot: int) -> Mapping[str, float]:
        return self._results(slot // self.sides)[self._team(slot)]

    def _show(self) -> None:
        self._decisions.inputs[0][:] = self._shown()

    def _shown(self) -> Array:
        """What the slots observe, [B, F]."""
        seen = self._seen()
        if self.see_side:
            seen = np.concatenate([seen, np.broadcast_to(TEAMS, (*seen.shape[:3], 1))], -1)
        return (seen if self.both else seen[np.arange(self.count), self.team]).reshape(self.slots, -1)

    def state_dict(self) -> StateDict:
        return {"games": self._state(), "episode": self._episode.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for another number of slots."""
        if len(state["episode"]) != self.count:
            raise ValueError(f"the state is of {len(state['episode'])} games, this arena has {self.count}")
        self._episode[:] = state["episode"]
        self._take_keys()
        self._load(state["games"])
        self._clear(cost=0)
        self._show()

    def close(self) -> None:
        """Nothing is held open."""


def with_side(spec: Spec) -> Spec:
    """The interface of a side that also sees its team: a last number, -1 for team 0 and 1 for team 1."""
    (seen,) = spec.inputs
    return replace(spec, inputs=(replace(seen, shape=(seen.shape[0] + 1,)),))


def learner_teams(keys: Array, side: Side, both: bool, draw: int) -> Array:
    """The learner's team in the episodes with these keys, int64 [G]: drawn for each by draw number ``draw`` if ``side``
    is random; 0 where it plays both."""
    if side == "random" and not both:
        return (seeds.uniform(keys, draw) >= 0.5).astype(np.int64)
    return np.full(len(keys), int(side == "right"), np.int64)
