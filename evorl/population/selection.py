"""Names the best individual of a population: those with the highest first fitness are replayed on fresh episodes.

The highest of many noisy numbers is too high, by luck, and more so with many individuals and few episodes each. So it
does not decide alone. The highest individuals play again and the better half stays, until one is left (sequential
halving: Karnin, Koren and Somekh 2013, "Almost optimal exploration in multi-armed bandits"). Candidates are compared by
the mean over all episodes that they have played, so that few replays do not outweigh a fitness of many episodes. The
last candidate then plays *held-out* episodes, which had no part in the choice. Their mean is its fitness without luck.

All candidates of a round play the same episodes. Their keys follow from the seed, and are disjoint from those of
training, of fitnesses and of evaluations. So a selection is a pure function of the candidates and the experiment: it
does not depend on the cluster, nor on when or how often the run was evaluated or stopped. It is played in this process,
like evaluations: workers may still be busy with individuals.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import (
    Evaluation,
    IndependentEvolution,
    Individual,
    objective_weights,
    pack_evaluations,
    ranks_by_fitness,
    unpack_evaluations,
)
from evorl.mdp.core import World
from evorl.ops.student_t import half_width
from evorl.population.episodes import play_keyed_episodes
from evorl.population.evaluation_plan import EvaluationPlan
from evorl.population.genes import with_values
from evorl.population.objectives import result_of_episodes
from evorl.population.results import WITHOUT_RESULT, why
from evorl.rl.core import Metrics
from evorl.rl.evaluation import in_whole_games
from evorl.training.experiment import Experiment
from evorl.util import seed as seeds
from evorl.util.types import StateDict

log = logging.getLogger("evorl")
Scores = NDArray[np.float64]


class Candidate(NamedTuple):
    """An individual that may be named best."""

    evaluation: Evaluation  # with its weights
    first: float  # its fitness when it was evaluated
    step: int  # environment steps of the run at that time

    @property
    def id(self) -> int:
        return self.evaluation.individual.id


class Selected(NamedTuple):
    """What a selection says of the individual that it named best."""

    id: int
    heldout: list[float]  # the fitness in each held-out game
    episodes: int  # held-out ones
    steps: int  # environment steps of the whole selection

    @property
    def mean(self) -> float:
        return float(np.mean(self.heldout))


def with_interval(games: Sequence[float], episodes: int) -> dict[str, Any]:
    """Return the mean of these games with its 95 % interval (Student's t), and the number of their episodes."""
    mean, half = float(np.mean(games)), half_width(games)
    low, high = (mean - half, mean + half) if math.isfinite(half) else (None, None)
    return {"mean": mean, "low": low, "high": high, "confidence": 0.95, "episodes": episodes}


def rounds(candidates: int, episodes: int) -> list[tuple[int, int]]:
    """Return the rounds that choose one: how many candidates play, and how many episodes each.

    They take at most half of ``episodes``, in equal shares; the other half is held out. Where a share has less than an
    episode for every candidate, there are fewer candidates.
    """
    number = max(min(candidates, episodes // 2), 1)
    while (count := math.ceil(math.log2(number))) * number > episodes // 2:
        number -= 1
    share, plan = episodes // 2 // max(count, 1), list[tuple[int, int]]()
    while number > 1:
        plan.append((number, share // number))
        number = math.ceil(number / 2)
    return plan


def candidates_within(wanted: int, episodes: int) -> int:
    """Return how many candidates so many episodes are enough for; a single one only plays the held-out episodes."""
    plan = rounds(wanted, episodes)
    return plan[0][0] if plan else min(wanted, 1)


Replay = Callable[[int, str, int], tuple[Scores, int]]
"""Plays a candidate, by its place: the purpose of the episodes' keys and their number go in, the score in each episode
[E] and their environment steps come out; the score is -inf if it cannot be played."""


def halve(first: Sequence[Scores], episodes: int, replay: Replay) -> tuple[int, Scores, int] | None:
    """Select a candidate by sequential halving, with so many episodes in all.

    ``first`` holds the scores [E] of each before it was a candidate. Returns the place of the one that is left, its
    scores in the held-out episodes and the environment steps of all replays; None if none can be played.
    """
    plan, standing, steps = rounds(len(first), episodes), [*range(len(first))], 0
    played = [[scores] for scores in first]
    for number, (count, each) in enumerate(plan):
        standing = standing[:count]
        for candidate in standing:
            scores, cost = replay(candidate, f"select {number}", each)
            played[candidate].append(scores)
            steps += cost
        means = [float(np.concatenate(scores).mean()) for scores in played]
        standing.sort(key=lambda candidate: -means[candidate])  # stable: of equal ones, the first
    left = episodes - sum(count * each for count, each in plan)
    for candidate in standing:  # a later one only where the earlier ones cannot be played
        scores, cost = replay(candidate, "held out", left)
        steps += cost
        if np.isfinite(scores).all():
            return candidate, scores, steps
    return None


class Selection:
    """How an experiment's best individual is selected."""

    def __init__(
        self, experiment: Experiment, evolution: IndependentEvolution, plan: EvaluationPlan, by: str = ""
    ) -> None:
        """``by``: what says who is best, where episodes of the world do not."""
        self.experiment, self.evolution, self.plan, self.by = experiment, evolution, plan, by
        self.episodes = experiment.eval.candidate_episodes or 2 * experiment.eval.episodes
        wanted = experiment.eval.candidates if not by and plan.learner is not None else 0
        self.candidates = candidates_within(wanted, self.episodes)

    def of(self, candidates: Sequence[Candidate]) -> Selected | None:
        """Select one of the candidates, which stand by first fitness; None if none of them can be replayed."""
        first = [self._scores(candidate.evaluation.result) for candidate in candidates]
        ranking = halve(first, self.episodes, lambda place, *keys: self._replay(candidates[place], *keys))
        if ranking is None:
            return None
        place, scores, steps = ranking
        games = scores.reshape(-1, self._sides).mean(1)  # the sides of a game are not independent
        return Selected(candidates[place].id, games.tolist(), len(scores), steps)

    @property
    def _sides(self) -> int:
        return self.experiment.mdp.evaluation_world().sides

    def _replay(self, candidate: Candidate, purpose: str, episodes: int) -> tuple[Scores, int]:
        """Return the fitness in each episode [E] of these keys, and their environment steps; -inf where it fails."""
        individual = candidate.evaluation.individual
        assert self.plan.learner is not None
        try:
            with self._world(individual) as world:
                number = in_whole_games(world, episodes)
                keys = seeds.Episodes(self.experiment.seed, purpose, evaluation=True)
                played = play_keyed_episodes(
                    world, self.plan.learner(individual), keys, number, self.experiment.eval.max_steps
                )
                answer = result_of_episodes(self.evolution, played, world.sides)
        except WITHOUT_RESULT as error:
            log.warning("individual %d cannot be replayed: %s", individual.id, why(error))
            return np.array([-np.inf]), 0
        return self._scores(answer.result), answer.cost

    @contextmanager
    def _world(self, individual: Individual) -> Iterator[World]:
        """The world that an individual is evaluated in: its genes may change it."""
        if not any(gene.name.startswith("mdp.") for gene in self.plan.space.genes):
            yield self.experiment.mdp.evaluation_world()
            return
        with closing(with_values(self.experiment, self.plan.space.values(individual.genes)).mdp) as world:
            yield world.evaluation_world()

    def _scores(self, result: Mapping[str, NDArray[Any]]) -> Scores:
        """Return the number that ranks individuals, of each episode [E]."""
        if ranks_by_fitness(self.evolution.objectives) and "fitness" in result:
            return np.asarray(result["fitness"], np.float64)
        terms = objective_weights(self.evolution.objectives[0]).items()
        return np.asarray(sum(weight * np.asarray(result[name], np.float64) for name, weight in terms))


class BestIndividual:
    """The individual that a population names best, and those that may be: state to checkpoint."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.most = max(selection.candidates, 1)
        self.candidates: list[Candidate] = []  # of highest fitness, the highest first
        self.named: Candidate | None = None
        self.selected: Selected | None = None  # what the last selection said of it
        self._considered: list[int] = []  # ids of the candidates of the last selection

    @property
    def _latest(self) -> bool:
        """Whether the last to come of equal individuals goes before the others.

        Where a fitness has a ceiling, such as a share of games, many reach it by luck, and a later one comes of more
        selection. An exact fitness has no luck.
        """
        return self.selection.candidates > 0

    def may_be(self, first: float) -> bool:
        """Return whether an individual with this first fitness becomes a candidate."""
        if not math.isfinite(first) or len(self.candidates) < self.most:
            return math.isfinite(first)
        lowest = self.candidates[-1].first
        return first > lowest or (self._latest and first == lowest)

    def add(self, candidate: Candidate) -> None:
        """Add a candidate. Before the first selection, the highest first fitness is named best."""
        light = candidate._replace(
            evaluation=candidate.evaluation._replace(individual=_without_replay(candidate.evaluation.individual))
        )
        standing = [light, *self.candidates] if self._latest else [*self.candidates, light]
        self.candidates = sorted(standing, key=lambda each: -each.first)[: self.most]  # stable
        if self.selected is None:
            self.named = self.candidates[0]

    def name(self, candidate: Candidate) -> None:
        """Name this one best, where nothing is replayed."""
        self.named = candidate
        self.candidates = [candidate]

    def select(self) -> None:
        """Name the best of the candidates by replays, unless they are those of the last selection."""
        ids = [candidate.id for candidate in self.candidates]
        if not self.selection.candidates or not ids or ids == self._considered:
            return
        selected = self.selection.of(self.candidates)
        self._considered, self.selected = ids, selected
        self.named = next(
            (candidate for candidate in self.candidates if selected and candidate.id == selected.id), self.candidates[0]
        )

    def metrics(self) -> Metrics:
        """Return what the last selection says, as metrics."""
        if self.selected is None or self.named is None:
            return {}
        mean = self.selected.mean
        return {
            "selection/heldout": mean, "selection/luck": self.named.first - mean,
            "selection/steps": self.selected.steps,
        }  # fmt: skip

    def result(self) -> dict[str, Any]:
        """Return what result.json says of the fitness of the individual named best."""
        assert self.named is not None
        first, about = self.named.first, self.selected
        if about is None:
            by = "exact fitness" if self.selection.plan.learner is None else "first fitness"
            return {"fitness": first, "selected_by": self.selection.by or by}
        return {
            "fitness": about.mean, "selected_by": "held-out", "heldout": with_interval(about.heldout, about.episodes),
            "first_fitness": first, "luck": first - about.mean, "candidates": list(self._considered),
            "selection_steps": about.steps,
        }  # fmt: skip

    def state_dict(self) -> StateDict:
        others = [candidate.evaluation for candidate in self.candidates if candidate is not self.named]
        return {
            "leader": pack_evaluations([] if self.named is None else [self.named.evaluation]),
            "candidates": pack_evaluations(others),
            "ranking": [[candidate.id, candidate.first, candidate.step] for candidate in self.candidates],
            "named": None if self.named is None else [self.named.first, self.named.step],
            "considered": list(self._considered),
            "selected": None if self.selected is None else list(self.selected),
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        leader = next(iter(unpack_evaluations(state["leader"])), None)
        if leader is None:
            return
        self.named = Candidate(leader, *state["named"])
        known = {evaluation.individual.id: evaluation for evaluation in unpack_evaluations(state["candidates"])}
        self.candidates = [
            self.named if number == self.named.id else Candidate(known[number], first, step)
            for number, first, step in state["ranking"]
        ][: self.most]
        self._considered = list(state["considered"])
        self.selected = None if state["selected"] is None else Selected(*state["selected"])


def _without_replay(individual: Individual) -> Individual:
    """An individual without the replay of its learner, which is large, and which nothing that plays needs."""
    memory = individual.memory or {}
    if "replay" not in memory.get("learner", {}):
        return individual
    return individual._replace(
        memory={**memory, "learner": {k: x for k, x in memory["learner"].items() if k != "replay"}}
    )
