"""Policies of run directories as players of a game: in payoff matrices, and in the pool of a learner's opponents.

A word names them: RUN_DIR (or RUN_DIR@last) is the latest checkpoint, others are RUN_DIR@best, RUN_DIR@STEP and
RUN_DIR@all (each that the run keeps). Of a population whose individuals play each other, RUN_DIR@all are the policies
that they play, which are RUN_DIR@snapshot:0 and so on. RUN_DIR may be a pattern of the shell. Run directories are read
as data.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evorl.cli import config
from evorl.jobs.saved_policies import (
    LATEST,
    SavedPolicy,
    checkpoint_name,
    checkpoint_of,
    learner_of,
    saved_policy,
    snapshots,
)
from evorl.record import checkpoint, run_names
from evorl.util import run_directory
from evorl.util.errors import BadRequest, nearest, wrong_data
from evorl.util.names import no_such_run

if TYPE_CHECKING:
    from evorl.ec.core import Individual
    from evorl.mdp.core import Spec, World
    from evorl.opponents.sampler import RunPolicy
    from evorl.rl.network_learner import NetworkLearner
    from evorl.training.experiment import Experiment

EVERY = "all"
"""RUN_DIR@all: each checkpoint that the run keeps, or each snapshot of a league."""
SNAPSHOT = "snapshot:"
"""RUN_DIR@snapshot:K: a snapshot of the latest checkpoint."""
KEY = "opponents.runs"
KEPT = ".hydra/opponents.json"
"""File of a run directory: the algorithms of other runs, from which the forms of their policies follow."""


class Place(NamedTuple):
    """A checkpoint of a run."""

    directory: str
    which: str
    step: int | None = None
    """Of the checkpoint in which a snapshot was found; None: the latest. A run that goes on writes others."""

    def __str__(self) -> str:
        return self.directory if self.which == LATEST else f"{self.directory}@{self.which}"


class LoadedPolicy(NamedTuple):
    """The policy of a checkpoint."""

    checkpoint: Path
    step: int
    """Environment steps that it has learned for."""
    learner: NetworkLearner[Any]


# ------------------------------------------------------------------ what a word means


def split(word: str, key: str) -> Place:
    """The directory and the checkpoint of a word. Raises `BadRequest` at ``key``."""
    directory, at, which = word.rpartition("@")
    if not at or os.path.isdir(word):
        directory, which = word, LATEST
    return Place(run_names.named(directory, key).rstrip("/") or "/", checkpoint_name(which))


def places(word: str, key: str, trust: Sequence[str] = (), others: Sequence[str] = ()) -> list[Place]:
    """The policies that a word means. Raises `BadRequest` at ``key``, which also suggests the nearest of ``others``."""
    directory, which, _ = split(word, key)
    folders = [directory] if os.path.exists(directory) else sorted(filter(os.path.isdir, glob.glob(directory)))
    if not folders:
        if meant := nearest(word, others):  # nearer than a folder beside it
            raise BadRequest(f"{directory}: no such run directory{meant}", key)
        raise no_such_run(directory, key)
    if which != EVERY:
        return [Place(folder, which) for folder in folders]
    return [place for folder in folders for place in _every(folder, key, trust)]


def _every(directory: str, key: str, trust: Sequence[str]) -> list[Place]:
    steps = checkpoint.steps(Path(directory))
    evolves = steps and config.read_run_config(Path(directory), key)["ec"] is not None
    kept = _snapshots(directory, steps[-1], tuple(trust), key) if evolves else []
    snapshots_of_last = [Place(directory, f"{SNAPSHOT}{k}", steps[-1]) for k in range(len(kept))]
    return snapshots_of_last or [Place(directory, str(step)) for step in steps]


@lru_cache(maxsize=1)
def _snapshots(directory: str, step: int, trust: tuple[str, ...], key: str) -> list[SavedPolicy]:
    """The snapshots that a checkpoint of a population holds; all of them are read at once."""
    place = Place(directory, str(step))
    experiment = experiment_at(place, trust, key)
    with _errors_named(place, key):
        return snapshots(experiment, *checkpoint_of(Path(directory), place.which))


def all_places(words: Sequence[str], key: str, trust: Sequence[str] = (), others: Sequence[str] = ()) -> list[Place]:
    """The policies that the words mean, each once. Raises `BadRequest` as `places`."""
    listed = [place for word in words for place in places(word, key, trust, others)]
    ours = [str(place) for place in listed]
    if twice := next((place for place in ours if ours.count(place) > 1), None):
        raise BadRequest(f"{twice} is named twice", key)
    return listed


def names(listed: Sequence[Place]) -> list[str]:
    """A name for each place: the last parts of its path, as many as distinguish all directories."""
    ends = ends_of([Path(place.directory) for place in listed])
    return [str(Place(end, place.which)) for end, place in zip(ends, listed, strict=True)]


def ends_of(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as distinguish all that differ."""
    parts = [path.absolute().parts for path in paths]
    most, different = max(map(len, parts), default=0), len({*paths})
    length = next(n for n in range(1, most + 2) if len({each[-n:] for each in parts}) == different or n >= most)
    return ["/".join(each[-length:]) for each in parts]


# ------------------------------------------------------------------ their policies


@contextmanager
def _errors_named(place: Place, key: str) -> Iterator[None]:
    """Report at ``key`` what is wrong with a run."""
    try:
        yield
    except BadRequest as error:
        raise BadRequest(f"{place}: {error.args[0]}", key) from None


def experiment_at(place: Place, trust: Sequence[str], key: str) -> Experiment:
    """The experiment of a run. Raises `BadRequest` at ``key``."""
    try:
        return config.experiment_of_run(Path(place.directory), trust)
    except BadRequest as error:
        raise BadRequest(f"{place}: {error}", key) from None


def check_world(place: Place, theirs: World, ours: World, game: Spec, who: str, key: str) -> None:
    """Raise `BadRequest` at ``key`` unless a run plays the same game as ``who``, whose world is ``ours``."""
    from evorl.training.train import spec

    if type(theirs) is not type(ours):
        raise BadRequest(f"{place} plays {type(theirs).__name__}, {who} {type(ours).__name__}", key)
    with _errors_named(place, key):
        if spec(theirs.all_sides()) != game:
            raise BadRequest(f"its world has other observations, actions or rewards than {who}'s")


def policy_at(place: Place, experiment: Experiment, key: str) -> LoadedPolicy:
    """The policy of a run's checkpoint. Raises `BadRequest` at ``key``."""
    import torch

    from evorl.rl.network_learner import with_network

    if place.which.startswith(SNAPSHOT):
        return _snapshot_at(place, experiment, key)
    with _errors_named(place, key):
        path, run = checkpoint_of(Path(place.directory), place.which)
        saved = saved_policy(experiment, path, run, None)
        if saved.policy is None:
            raise BadRequest(f"{path} holds no policy")
        learner = with_network(learner_of(experiment, saved.policy, torch.device("cpu"), path), "a game")
    return LoadedPolicy(path, _learned(saved.individual, int(run["steps"])), learner)


def _learned(individual: Individual | None, otherwise: int) -> int:
    """The steps that an individual has learned for, since it began; those of the run where it has no own."""
    memory = {} if individual is None else individual.memory or {}
    return int(memory.get("steps", otherwise))


def _snapshot_at(place: Place, experiment: Experiment, key: str) -> LoadedPolicy:
    import torch

    from evorl.rl.network_learner import with_network

    directory, number = Path(place.directory), place.which.removeprefix(SNAPSHOT)
    step = max(checkpoint.steps(directory), default=None) if place.step is None else place.step
    policies = [] if step is None else _snapshots(place.directory, step, tuple(experiment.packages), key)
    if not policies:
        raise BadRequest(f"{place}: this run keeps no snapshots; those of ec=league and ec=psro do", key)
    if not number.isdecimal() or int(number) >= len(policies):
        raise BadRequest(f"{place}: its latest checkpoint holds {len(policies)} snapshots, from 0", key)
    state, individual, _ = policies[int(number)]
    path = directory / "checkpoints" / str(step)
    assert state is not None and individual is not None
    with _errors_named(place, key):
        learner = with_network(learner_of(experiment, state, torch.device("cpu"), path), "a game")
    return LoadedPolicy(path, _learned(individual, 0), learner)


# ------------------------------------------------------------------ in the pool of a learner


def absolute(words: Sequence[str]) -> list[str]:
    """The words with absolute paths: a resume may begin in another working directory."""
    parts = [split(word, KEY) for word in words]
    return [str(place._replace(directory=os.path.abspath(place.directory))) for place in parts]


def words_of(data: Mapping[str, Any]) -> list[str]:
    """The words that name other runs in a run's config."""
    against = data.get("opponents")
    words = against.get("runs") if isinstance(against, Mapping) else None
    return [str(word) for word in words] if isinstance(words, list | tuple) else []


def leads_to_runs(word: str) -> bool:
    """Whether there is a directory that a word names, or that matches it as a pattern."""
    directory = split(word, KEY).directory
    return os.path.exists(directory) or bool(glob.glob(directory))


def others_of(experiment: Experiment, data: Mapping[str, Any]) -> list[RunPolicy]:
    """The other runs in the pool of a new run, whose policies are still to be read. Raises `BadRequest`.

    ``data`` is the run's config, which names them where they are now.
    """
    from evorl.opponents.core import Pooled
    from evorl.opponents.sampler import RunPolicy
    from evorl.training.train import spec

    ours = experiment.opponents
    if not isinstance(ours, Pooled) or not ours.runs:
        return []
    listed, own, others = all_places(words_of(data), KEY, experiment.packages), spec(experiment.training_world), []
    game = spec(experiment.mdp.all_sides()) if experiment.reward.sums else own
    for place, name in zip(listed, names(listed), strict=True):
        theirs = experiment_at(place, experiment.packages, KEY)
        check_world(place, theirs.mdp, experiment.mdp, game, "this run", KEY)
        if (rewards := theirs.reward.spec(game).rewards) != own.rewards:
            both = f"{', '.join(rewards)}, not {', '.join(own.rewards)}"
            raise BadRequest(f"{place}: it has learned from other reward.sums: {both}", KEY)
        rl = config.read_run_config(Path(place.directory), KEY)["rl"]
        others.append(RunPolicy(name, theirs.rl, rl, partial(_read, place, theirs)))
    return others


def _read(place: Place, experiment: Experiment) -> tuple[int, list[Any]]:
    """Environment steps and weights of a policy."""
    policy = policy_at(place, experiment, KEY)
    return policy.step, policy.learner.weights()


def keep(directory: Path, others: Sequence[RunPolicy]) -> None:
    """Write the forms of other runs' policies into a run directory, so that the run goes on without those runs."""
    if others:
        run_directory.write_json(directory, KEPT, [{"name": other.name, "rl": other.config} for other in others])


def kept(directory: Path, experiment: Experiment) -> list[RunPolicy]:
    """The other runs in the pool of a run that has a checkpoint, which holds their policies. Raises `BadRequest`."""
    from evorl.opponents.core import Pooled
    from evorl.opponents.sampler import RunPolicy
    from evorl.rl.core import Hyper

    if not isinstance(experiment.opponents, Pooled) or not experiment.opponents.runs:
        return []
    path = directory / KEPT
    try:
        with wrong_data(lambda why: BadRequest(f"{path} is damaged: {why}", "resume")):
            others = []
            for player in run_directory.read_json(directory, KEPT):
                hyper = config.group_object(player["rl"], Hyper, "rl", experiment.packages)
                others.append(RunPolicy(str(player["name"]), hyper, player["rl"]))
            return others
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}", "resume") from None
