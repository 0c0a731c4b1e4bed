"""Names the best job of a search: the policies of the jobs of highest fitness are replayed on fresh episodes.

The highest of many final evaluations is high by luck, too, as the highest fitness of a population is
(`evorl.population.selection`). ``best.json`` in the directory of the sweep says which job was named and why.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.analysis.sweeps import BEST_FILE, read_best
from evorl.cli import config
from evorl.ec.core import objective_name, objective_weights
from evorl.jobs.job import is_run
from evorl.jobs.saved_policies import learner_of
from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.text import say

if TYPE_CHECKING:
    from evorl.jobs.search import Search
    from evorl.rl.core import Learner
    from evorl.training.experiment import Experiment

log = logging.getLogger("evorl")


class Policy(NamedTuple):
    """The policy that a job's run keeps, and its experiment."""

    experiment: Experiment
    learner: Learner


def name_best(search: Search, directory: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Name the best of a search's jobs (rows of population.jsonl that did not fail), and write ``best.json``.

    Returns its content; None if the search has several objectives. What an earlier command found for the same policies
    is taken over.
    """
    if len(search.objectives) > 1:
        return None
    standing = sorted(rows, key=lambda row: -_first(row))
    known = read_best(directory)
    if (
        known is not None
        and known["job"] in known["candidates"]
        and known.items() >= _stood(standing, len(known["candidates"])).items()
    ):
        return known
    with _policies(search, directory, standing) as policies:
        selected = _selected(search, standing, policies) | _stood(standing, max(len(policies), 1))
    run_directory.write_json(directory, BEST_FILE, selected)
    return selected


def _stood(standing: Sequence[Mapping[str, Any]], count: int) -> dict[str, Any]:
    """Among how many jobs so many were the candidates, and after how many steps: a job that goes on has another
    policy."""
    candidates = standing[:count]
    return {
        "candidates": [row["job"] for row in candidates],
        "candidate_steps": [row["results"].get("steps") for row in candidates],
        "jobs": len(standing),
    }


def _first(row: Mapping[str, Any]) -> float:
    return float(next(iter(row["objectives"].values())))


def _selected(search: Search, standing: Sequence[Mapping[str, Any]], policies: Sequence[Policy]) -> dict[str, Any]:
    """What is known of the best job: by replays of the candidates, or by what the jobs themselves found."""
    from evorl.population.selection import halve, with_interval
    from evorl.rl.evaluation import progress_shown

    sign = 1 if search.keys.direction == "maximize" else -1
    name = objective_name(search.evolution.objectives[0])
    about = {"job": standing[0]["job"], "objective": name, name: sign * _first(standing[0]), "selected_by": "result"}
    if not policies:
        return about
    counts = [max(int(row["results"].get("episodes") or 1), 1) for row in standing]
    first = [np.full(count, _first(row)) for count, row, _ in zip(counts, standing, policies, strict=False)]

    def replay(place: int, purpose: str, episodes: int) -> tuple[NDArray[np.float64], int]:
        return _replay(search, standing[place]["job"], policies[place], purpose, episodes)

    try:
        with progress_shown(partial(say, stream=sys.stderr)):
            ranking = halve(first, _budget(policies[0].experiment), replay)
    except KeyError:  # an objective that no episode has, such as seconds
        return about
    if ranking is None:
        return about
    place, scores, steps = ranking
    sides = policies[place].experiment.mdp.evaluation_world().sides
    heldout = with_interval((sign * scores).reshape(-1, sides).mean(1).tolist(), len(scores))
    row = standing[place]
    return {
        "job": row["job"], "objective": name, name: heldout["mean"], "selected_by": "held-out", "heldout": heldout,
        f"first_{name}": sign * _first(row), "luck": _first(row) - sign * heldout["mean"], "selection_steps": steps,
    }  # fmt: skip


def _replay(search: Search, job: str, policy: Policy, purpose: str, episodes: int) -> tuple[NDArray[np.float64], int]:
    """The objective of a job's policy in so many episodes [E], and their environment steps; -inf where it fails.

    Raises KeyError for an objective that episodes do not have.
    """
    from evorl.mdp.core import WorldError
    from evorl.population.episodes import play_keyed_episodes
    from evorl.population.objectives import numbers_of_episodes
    from evorl.population.results import why
    from evorl.rl.core import NotFinite
    from evorl.rl.evaluation import in_whole_games
    from evorl.util.seed import Episodes

    world, limit = policy.experiment.mdp.evaluation_world(), policy.experiment.eval.max_steps
    keys = Episodes(search.seed, f"job {purpose}", evaluation=True)
    try:
        played = play_keyed_episodes(world, policy.learner, keys, in_whole_games(world, episodes), limit)
    except (NotFinite, WorldError) as error:
        log.warning("job %s cannot be replayed: %s", job, why(error))
        return np.array([-np.inf]), 0
    numbers, steps = numbers_of_episodes(played, world.sides)
    terms = objective_weights(search.objectives[0]).items()
    return np.asarray(sum(weight * np.asarray(numbers[name], np.float64) for name, weight in terms)), steps


def _budget(experiment: Experiment) -> int:
    return experiment.eval.candidate_episodes or 2 * experiment.eval.episodes


@contextmanager
def _policies(search: Search, directory: Path, standing: Sequence[Mapping[str, Any]]) -> Iterator[list[Policy]]:
    """The policies of the first jobs, as many as ``eval.candidates`` of the first one says; none if one is missing."""
    from evorl.population.selection import candidates_within

    trust = config.trusted_packages([word for words in search.extremes() for word in words], {})
    with ExitStack() as opened:
        policies, most = list[Policy](), 1
        for row in standing:
            if len(policies) == most:
                break
            policy = _policy(directory / row["job"], trust)
            if policy is None:
                policies = []
                break
            opened.callback(policy.experiment.mdp.close)
            if not policies:
                evaluating = policy.experiment.eval
                most = min(candidates_within(evaluating.candidates, _budget(policy.experiment)), len(standing))
            policies.append(policy)
        yield policies[:most]


def _policy(run: Path, trust: Sequence[str]) -> Policy | None:
    """The policy that a run keeps; None where there is none, as for a problem, or a damaged one."""
    import torch

    from evorl.record import checkpoint

    if not is_run(run):
        return None
    try:
        experiment = config.experiment_of_run(run, trust)
        path, state = checkpoint.run_state(run)
        if state["learner"] is None:
            return None
        learner = learner_of(experiment, state["learner"], torch.device("cpu"), path)
    except BadRequest as error:
        log.warning("job %s cannot be replayed: %s", run.name, error)
        return None
    return Policy(experiment, learner)
