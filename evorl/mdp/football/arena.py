"""B games of football in lockstep, each in a thread of its own. See `evorl.mdp.football.games` for what a game is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from evorl.mdp.action_log import ActionLog
from evorl.mdp.core import Array, Closes, Decisions, EpisodeEndHook, ResultsSoFar, StepsTogether, WorldError
from evorl.mdp.decision_arrays import check_digests, digest, empty_decisions
from evorl.mdp.delay import name_of
from evorl.mdp.football.drawing import draw
from evorl.mdp.football.games import SlotGames
from evorl.util.seed import Episodes
from evorl.util.types import StateDict

if TYPE_CHECKING:
    from evorl.mdp.football.world import Football


class FootballArena(EpisodeEndHook, ResultsSoFar, StepsTogether, Closes):
    """A saved game goes on by playing its actions again. Results: goals, goals of the other team, their difference as
    ``score`` and ``return``, ``win``, and the ``length``."""

    sides = 1

    def __init__(self, world: Football, slots: int, episodes: Episodes) -> None:
        self.world, self.slots, self.spec = world, slots, world.spec
        self._games = [SlotGames(world.scenario, slot, episodes) for slot in range(slots)]
        self._decisions = empty_decisions(self.spec, slots)
        self._decisions.slots = np.arange(slots)
        self._name = name_of(world)
        self._seen = self._decisions.inputs[0]
        self._log = ActionLog(self.spec.action, slots)
        self._episode, self._lengths = np.zeros((2, slots), np.int64)
        self._score = [(0, 0)] * slots
        self._begin([*range(slots)])

    def _begin(self, slots: list[int]) -> None:
        """Begin the games where these slots are. Their engines work side by side."""
        for slot in slots:
            self._games[slot].begin(int(self._episode[slot]))
            self._lengths[slot], self._score[slot] = 0, (0, 0)
        while slots:
            slots = [slot for slot in slots if not self._games[slot].begun(self._seen[slot])]

    def recv(self) -> Decisions:
        return self._decisions

    def send(self, slots: Array, actions: Array) -> None:
        """Advance every game by one step. Raises ValueError unless ``slots`` is all slots."""
        if len(slots) != self.slots:
            raise ValueError(f"games of football advance together: {self.slots} slots, got actions for {len(slots)}")
        decisions = self._decisions
        decisions.results, decisions.cost = [], self.slots
        self._log.append(actions)
        for games, action in zip(self._games, actions[:, 0].tolist(), strict=True):
            games.send(action)
        ended, limit = dict[int, dict[str, float]](), self.world.longest_episode
        self._lengths += 1
        for slot, games in enumerate(self._games):
            self._seen[slot], outcome = games.recv()
            cut = not outcome.over and (outcome.late or self._lengths[slot] >= limit)
            decisions.reward[slot, 0] = outcome.reward
            decisions.terminated[slot], decisions.truncated[slot] = outcome.over, cut
            self._score[slot] = outcome.score
            if outcome.over or cut:
                ended[slot] = result(*outcome.score, length=int(self._lengths[slot]))
        if ended:
            self._end(ended)

    def _end(self, ended: dict[int, dict[str, float]]) -> None:
        self._notify_episode_end()
        decisions, slots = self._decisions, [*ended]
        decisions.final[0][slots] = self._seen[slots]
        decisions.results = [*ended.items()]
        self._episode[slots] += 1
        self._log.begin(slots)
        self._begin(slots)

    def results_so_far(self, slot: int) -> Mapping[str, float]:
        return result(*self._score[slot], length=int(self._lengths[slot]))

    def render(self, slot: int = 0) -> Array:
        """The field from above, uint8 [360, 480, 3]."""
        return draw(self._seen[slot])

    def state_dict(self) -> StateDict:
        digests = np.array([digest(self._decisions, slot) for slot in range(self.slots)], np.int64)
        return {"episode": self._episode.copy(), "log": self._log.state_dict(), "digest": digests}

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for another number of slots, `WorldError` if the games come to another state."""
        if len(state["episode"]) != self.slots:
            raise ValueError(f"the state is of {len(state['episode'])} slots, this arena has {self.slots}")
        self._episode[:] = state["episode"]
        self._log.load_state_dict(state["log"])
        self._begin([*range(self.slots)])
        self._play_again()
        decisions = self._decisions
        unknown = np.zeros(self.slots, np.int64)  # in the states of older versions
        check_digests(decisions, range(self.slots), state.get("digest", unknown), self._name)
        decisions.reward[:], decisions.results, decisions.cost = 0, [], 0
        decisions.terminated[:] = decisions.truncated[:] = False

    def _play_again(self) -> None:
        """Play the actions of the running games. Their engines work side by side."""
        logs = [self._log.of(slot)[:, 0].tolist() for slot in range(self.slots)]
        self._lengths[:] = [len(log) for log in logs]
        for step in range(max(self._lengths)):
            slots = [slot for slot, log in enumerate(logs) if step < len(log)]
            for slot in slots:
                self._games[slot].send(logs[slot][step])
            for slot in slots:
                self._seen[slot], outcome = self._games[slot].recv()
                self._score[slot] = outcome.score
                if outcome.over or outcome.late:
                    raise WorldError(f"{self._name} cannot be resumed: replaying its actions ended game {slot} early")

    def close(self) -> None:
        for games in self._games:
            games.close()


def result(own: int, other: int, length: int) -> dict[str, float]:
    """The results of a game with this score."""
    lead = own - other
    return {
        "return": float(lead), "score": float(lead), "goals": float(own), "goals_against": float(other),
        "win": 0.5 + 0.5 * ((lead > 0) - (lead < 0)), "fitness": 0.5 + 0.5 * ((lead > 0) - (lead < 0)),
        "length": float(length),
    }  # fmt: skip
