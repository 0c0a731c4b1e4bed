"""What an individual does with the opponents that are sent with it: learn in games against them, or play a match.

`evorl.population.loop` puts them into its memory: their ``numbers``, the ``chances`` of each as the learner's side has
it, the chances of the individual ``itself``, and the ``policies``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evorl.ec.core import Evolution, Individual, unpack
from evorl.mdp.core import StateDict, World
from evorl.nets.flat import Layout
from evorl.opponents.appointed import Appointed, Appointment
from evorl.opponents.core import PastSelves
from evorl.opponents.play import PAIRS, Matches, Outcome, Pair, alike
from evorl.population.results import IndividualResult
from evorl.rl.core import Learner
from evorl.rl.network_learner import NetworkLearner, with_network

ACTING = ("moments",)
"""Parts of a learner's state that its policy needs to act, beside its weights."""


def split(individual: Individual) -> tuple[Individual, Mapping[str, Any] | None]:
    """Return an individual without its opponents, and these; None where it has none."""
    if "opponents" not in (individual.memory or {}):
        return individual, None
    memory = dict(individual.memory or {})
    opponents = memory.pop("opponents")
    return individual._replace(memory=memory or None), opponents


def layout_of(learner: Learner) -> Layout:
    policy = learner.state_dict()["policy"]
    return Layout(tuple(policy), tuple(x.shape for x in policy.values()))


def acting_weights(learner: Learner, policies: Sequence[Individual]) -> list[list[Tensor]]:
    """Return what the policies of individuals act with (`Learner.weights`). The learner stays as it is."""
    fresh, layout, weights = learner.state_dict(), layout_of(learner), []
    for policy in policies:
        known = {name: part for name, part in (policy.memory or {}).get("learner", {}).items() if name in ACTING}
        learner.load_policy({**fresh, **known, "policy": layout.unflatten(torch.tensor(policy.weights))})
        weights.append([x.detach().cpu().clone() for x in learner.weights()])
    learner.load_state_dict(fresh)
    return weights


# ------------------------------------------------------------------ learning


def sides_of(against: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the sides of an individual, those on which it has opponents; None for all."""
    chances = np.sum([*against["chances"], *filter(None, [against["itself"]])], 0)
    return None if len(chances) == 1 else tuple(np.flatnonzero(chances).tolist())


def appointed(config: PastSelves, learner: Learner, against: Mapping[str, Any]) -> Appointed:
    """Return the pool of an individual's opponents."""
    weights = acting_weights(learner, unpack(against["policies"]))
    others = [Appointment(*opponent) for opponent in zip(against["numbers"], against["chances"], weights, strict=True)]
    return Appointed(config, others, against["itself"] or [0.0] * len(others[0].chances))


def games_of(pool: Appointed) -> StateDict:
    """Return the games that were played, as an individual brings them back."""
    opponents, points = np.array(pool.games, np.float64).reshape(-1, 2).T
    return {"opponents": opponents.astype(np.int64), "points": points.copy()}


# ------------------------------------------------------------------ matches


class _Policy(NamedTuple):
    """One of the players of a match."""

    learner: NetworkLearner[Any]
    weights: Sequence[Tensor]
    form: str = ""


def play_match(
    evolution: Evolution, world: World, learner: Learner, individual: Individual, against: Mapping[str, Any]
) -> IndividualResult:
    """Play the match that an individual stands for (`evorl.ec.opposing.Opposing`). Raises an error of `WITHOUT_RESULT`.

    ``learner`` is of the form of all policies.
    """
    network = with_network(learner, "a match", "rl")
    match: Mapping[str, Any] = (individual.memory or {})["match"]
    players = tuple(_Policy(network, weights) for weights in acting_weights(learner, unpack(against["policies"])))
    place = {int(number): k for k, number in enumerate(against["numbers"])}
    pairs = [Pair(place[match["player"]], place[other], 0, match["games"]) for other in match["others"]]
    matches = Matches(world, players, match["key"], deterministic=False)
    threads = torch.get_num_threads()
    try:
        played = {game.pair: game for task in alike(pairs, players, PAIRS) for game in matches.play(task)}
    finally:
        torch.set_num_threads(threads)
    earned = np.stack([_earned(played[pair]) for pair in pairs])
    cost = sum(sum(game.lengths) for game in played.values())
    objectives = [np.nan] * len(evolution.objectives)  # which are of the world's own evaluation
    return IndividualResult(objectives, cost, {}, None, {"games": {"earned": earned}}, "")


def _earned(game: Outcome) -> NDArray[np.float64]:
    """What player a of a pair earned on average [2]: on side 0, in the games of even numbers, and on side 1."""
    return np.asarray(np.reshape(game.margins, (-1, 2)).mean(0))
