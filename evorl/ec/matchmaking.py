"""Who plays whom in a population, and in a league by the roles of AlphaStar: main agents, main and league exploiters.

Vinyals et al. 2019, Grandmaster level in StarCraft II using multi-agent reinforcement learning, Methods, and the
pseudocode that goes with it. A score is the share of games that the first player wins, a draw counting one half.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Individual, pack, unpack
from evorl.ec.opposing import Match
from evorl.ops.matchmaking import UNPLAYED, Weighting, pfsp
from evorl.util.types import StateDict

Role = Literal["main", "main exploiter", "league exploiter"]
Mixture = dict[int, float]
"""The probability of each opponent, by its number."""


class Player(NamedTuple):
    """An agent, which learns, or a snapshot of it, which does not."""

    number: int
    role: Role
    """Its agent's, for a snapshot."""
    policy: int
    """The number of the policy that it plays with."""
    agent: int | None = None
    """The agent that a snapshot was taken of; None for an agent."""


@dataclass(frozen=True)
class Shares:
    """Shares of a main agent's games; the rest are against all snapshots."""

    itself: float  # against main agents
    forgotten: float  # against snapshots that an agent should beat and does not


TOO_STRONG = {"main": 0.3, "main exploiter": 0.1}
"""Scores against a main agent below which an agent plays the snapshots of it instead."""
EXPLOITED, FORGOTTEN = 0.3, 0.7
"""Worst scores below which a main agent plays snapshots of main exploiters, and those of main agents, once more."""


def matches(own: Player, players: Sequence[Player], score: Callable[[Player], float], shares: Shares) -> Mixture:
    """Return the probability of each opponent of an agent; it may be among them itself (self-play).

    ``score`` is the agent's against a player.
    """
    past = [player for player in players if player.agent is not None]
    if own.role == "league exploiter":
        return weighted(past, score, "capped")
    mains = [player for player in players if player.agent is None and player.role == "main"]
    mixture: Mixture = defaultdict(float)
    if own.role == "main":
        _add(mixture, weighted(past, score, "hard"), 1 - shares.itself - shares.forgotten)
    for main in mains:
        fresh = _main_or_its_past(main, past, score, TOO_STRONG[own.role])
        if own.role == "main exploiter":
            _add(mixture, fresh, 1 / len(mains))
            continue
        _add(mixture, fresh, shares.itself / len(mains))
        _add(mixture, _lost_ground(main, past, score) or fresh, shares.forgotten / len(mains))
    return {number: chance for number, chance in mixture.items() if chance > 0}


def _main_or_its_past(main: Player, past: Sequence[Player], score: Callable[[Player], float], least: float) -> Mixture:
    """A main agent, or snapshots of it as a curriculum where it is too strong."""
    own = [snapshot for snapshot in past if snapshot.agent == main.number]
    return {main.number: 1.0} if score(main) > least or not own else weighted(own, score, "even")


def _lost_ground(main: Player, past: Sequence[Player], score: Callable[[Player], float]) -> Mixture:
    """Snapshots of main exploiters that beat an agent, else snapshots of a main agent that it has forgotten to beat."""
    exploiters = [snapshot for snapshot in past if snapshot.role == "main exploiter"]
    if exploiters and min(map(score, exploiters)) < EXPLOITED:
        return weighted(exploiters, score, "hard")
    older = without_easing_end([snapshot for snapshot in past if snapshot.agent == main.number], score)
    if older and min(map(score, older)) < FORGOTTEN:
        return weighted(older, score, "hard")
    return {}


def without_easing_end(snapshots: Sequence[Player], score: Callable[[Player], float]) -> Sequence[Player]:
    """Leave out the newest snapshots, as long as each is harder than the one before: that they are hard is no loss of
    what was learned before."""
    for last in range(len(snapshots) - 1, 0, -1):
        if score(snapshots[last - 1]) < score(snapshots[last]):
            return snapshots[: last + 1]
    return []


def weighted(players: Sequence[Player], score: Callable[[Player], float], weighting: Weighting) -> Mixture:
    """Prioritised fictitious self-play among these players."""
    if not players:
        return {}
    chances = pfsp(np.array([score(player) for player in players]), weighting)
    return {player.number: float(chance) for player, chance in zip(players, chances, strict=True)}


def _add(mixture: Mixture, part: Mixture, share: float) -> None:
    for number, chance in part.items():
        mixture[number] += share * chance


def bounded(mixture: Mixture, most: int, draw: float) -> Mixture:
    """Return a mixture of at most ``most`` opponents, whose mean over ``draw``, uniform in [0, 1), is this one.

    Systematic resampling: so many evenly spaced points, shifted by the draw, fall on the opponents laid end to end.
    """
    if len(mixture) <= most:
        return mixture
    numbers, chances = [*mixture], np.array([*mixture.values()])
    ends: NDArray[np.float64] = np.cumsum(chances) / chances.sum()
    points = (np.arange(most) + draw) / most
    hit = Counter(numbers[min(int(place), len(numbers) - 1)] for place in np.searchsorted(ends, points, "right"))
    return {number: times / most for number, times in hit.items()}


class Payoffs:
    """Wins, draws and losses of every pair; old games fade."""

    def __init__(self, decay: float) -> None:
        """``decay``: what a game keeps of its weight with each further game of the pair (Methods: 0.99)."""
        self.decay = decay
        self._counts: dict[tuple[int, int], list[float]] = {}

    def record(self, a: int, b: int, points: float) -> None:
        """Count a game: 1 point of a for a win, 1/2 for a draw, 0 for a defeat."""
        place = 0 if points > 0.5 else 1 if points == 0.5 else 2
        for pair, where in (((a, b), place), ((b, a), 2 - place)):
            counts = [self.decay * x for x in self._counts.get(pair, (0.0, 0.0, 0.0))]
            counts[where] += 1
            self._counts[pair] = counts

    def score(self, a: int, b: int) -> float:
        """The share of games that a wins against b, a draw counting one half."""
        wins, draws, losses = self._counts.get((a, b), (0.0, 0.0, 0.0))
        games = wins + draws + losses
        return (wins + draws / 2) / games if games else UNPLAYED

    def games(self, a: int, b: int) -> float:
        """The games of a pair, the older ones faded."""
        return sum(self._counts.get((a, b), ()))

    def forget(self, player: int) -> None:
        """Forget the games of a player."""
        self._counts = {pair: counts for pair, counts in self._counts.items() if player not in pair}

    def state_dict(self) -> dict[str, list[list[float]]]:
        return {"pairs": [[*pair, *counts] for pair, counts in self._counts.items()]}

    def load_state_dict(self, state: Mapping[str, Sequence[Sequence[float]]]) -> None:
        pairs = {(int(a), int(b)): [float(x) for x in counts] for a, b, *counts in state["pairs"]}
        self._counts = {(a, b): counts for (a, b), counts in pairs.items() if a != b}  # older states have those, too


class Policies:
    """Policies that do not change any more, by number, and the opponents of each individual that is due."""

    def __init__(self, policies: Mapping[int, Individual]) -> None:
        self.by_number = dict(policies)
        self.matches: dict[int, list[tuple[int, int, float]]] = {}  # of an individual: players, policies, chances

    def opponents(self, individual: int, own: int) -> list[Match]:
        """The opponents of an individual, which is player ``own``; against itself it plays as it learns."""
        return [
            Match(player, chance, None if player == own else self.by_number[policy])
            for player, policy, chance in self.matches[individual]
        ]

    def forget(self, playing: Iterable[int]) -> None:
        """Drop the policies that no agent plays any more; those in ``playing`` may be chosen again."""
        kept = {policy for match in self.matches.values() for _, policy, _ in match}.union(playing)
        self.by_number = {number: policy for number, policy in self.by_number.items() if number in kept}

    def state_dict(self) -> StateDict:
        numbers = sorted(self.by_number)
        return {
            "policies": pack([self.by_number[number] for number in numbers]), "policy": numbers,
            "matches": {str(i): [[*opponent] for opponent in match] for i, match in sorted(self.matches.items())},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.by_number = dict(zip(state["policy"], unpack(state["policies"]), strict=True))
        self.matches = {
            int(i): [(player, policy, float(chance)) for player, policy, chance in match]
            for i, match in state["matches"].items()
        }


def acting(individual: Individual) -> tuple[Individual, Individual, Mapping[str, Any]]:
    """Split an individual that has learned for a slice: as it continues, its policy, and the games that it has
    played."""
    memory = dict(individual.memory or {})
    games = memory.pop("games", {"opponents": (), "points": ()})
    policy = individual._replace(memory=memory.pop("acting", None))
    return individual._replace(memory=memory or None), policy, games
