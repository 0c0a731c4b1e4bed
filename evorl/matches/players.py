"""The players of a payoff matrix: policies of run directories, and the rule player of their world."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from evorl.cli import config
from evorl.jobs.saved_policies import checkpoint_of, learner_of, saved_policy
from evorl.mdp.core import Spec, World
from evorl.record import checkpoint, latest
from evorl.rl.network_learner import NetworkLearner
from evorl.training.experiment import Experiment
from evorl.training.train import spec
from evorl.util.errors import BadRequest

RULE = "rule"
"""The word for the rule player of the world."""
EVERY = "all"
"""RUN_DIR@all: each checkpoint that the run keeps."""


@dataclass(frozen=True)
class Player:
    """Who takes part. A player is the weights that it plays with: its fingerprint is theirs."""

    name: str
    """Short, and unlike those of the other players."""
    fingerprint: str
    """A checksum of the weights and of the form of the network; ``rule`` for the rule player."""
    directory: str = ""
    checkpoint: str = ""
    step: int = 0
    learner: NetworkLearner[Any] | None = None
    """None for the rule player."""
    form: str = ""
    """Players of the same form decide in one forward pass."""

    def record(self) -> dict[str, Any]:
        """What a file says of it."""
        return {
            "name": self.name, "fingerprint": self.fingerprint, "directory": self.directory,
            "checkpoint": self.checkpoint, "step": self.step,
        }  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """The world of the games, whose keys are those of the first player's run, and who plays them."""

    world: World
    """The world as the first run has it: `World.all_sides` and `World.one_side` make what is played."""
    keys: dict[str, Any]
    """Its keys, as plain data."""
    players: tuple[Player, ...]


def read(words: Sequence[str], trust: Sequence[str] = ()) -> Entry:
    """Return the world and the players that the words name: RUN_DIR, RUN_DIR@CHECKPOINT, RUN_DIR@all, or rule.

    Run directories are read as data. Raises `BadRequest`, with the word at fault, unless all play the same game.
    """
    places = [place for word in words if word != RULE for place in _places(word)]
    if not places:
        raise BadRequest("needs a run directory, whose world is played", "players")
    if len(places) + (RULE in words) < 2:
        raise BadRequest("needs two players or more", "players")
    if twice := next((one for one in places if places.count(one) > 1), None):
        raise BadRequest(f"{_written(*twice)} is named twice", "players")
    names = _names(places)
    first = _experiment(places[0], trust)
    keys = config.read_run_config(Path(places[0][0]), "players")["mdp"]
    try:
        game = spec(first.mdp.all_sides())
    except BadRequest as error:
        raise BadRequest(f"{_written(*places[0])}: {error.args[0]}", "players") from None
    if game.players != 2:
        raise BadRequest(f"{type(first.mdp).__name__} has {game.players} sides, and matches are of two", "players")
    players = [_player(place, name, first.mdp, game, trust) for place, name in zip(places, names, strict=True)]
    if RULE in words:
        for side in range(game.players):
            try:
                first.mdp.one_side(side)
            except BadRequest as error:
                raise BadRequest(f"{RULE}: {error.args[0]}", "players") from None
        players.append(Player(RULE, RULE))
    return Entry(first.mdp, keys, tuple(players))


def _places(word: str) -> list[tuple[str, str]]:
    """The directories and checkpoints that a word means; a pattern of the shell is one for each directory."""
    directory, at, which = word.rpartition("@")
    if not at or os.path.isdir(word):
        directory, which = word, "latest"
    directory = latest.named(directory, "players").rstrip("/")
    found = [directory] if os.path.exists(directory) else sorted(filter(os.path.isdir, glob.glob(directory)))
    if not found:
        raise BadRequest(f"{word}: no such run directory", "players")
    if which != EVERY:
        return [(one, which) for one in found]
    return [(one, str(step)) for one in found for step in checkpoint.steps(Path(one))]


def _names(places: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each place: the last parts of its path, as many as tell all directories apart."""
    paths = {directory: Path(directory).absolute().parts for directory, _ in places}
    most = max(map(len, paths.values()))
    length = next(
        n for n in range(1, most + 1) if len({parts[-n:] for parts in paths.values()}) == len(paths) or n == most
    )
    shown = {directory: "/".join(parts[-length:]) for directory, parts in paths.items()}
    return [shown[directory] + ("" if which == "latest" else f"@{which}") for directory, which in places]


def _written(directory: str, which: str) -> str:
    return directory if which == "latest" else f"{directory}@{which}"


def _experiment(place: tuple[str, str], trust: Sequence[str]) -> Experiment:
    try:
        return config.experiment_of_run(Path(place[0]), trust)
    except BadRequest as error:
        raise BadRequest(f"{_written(*place)}: {error}", "players") from None


def _player(place: tuple[str, str], name: str, world: World, game: Spec, trust: Sequence[str]) -> Player:
    experiment, written = _experiment(place, trust), _written(*place)
    theirs = experiment.mdp
    if type(theirs) is not type(world):
        raise BadRequest(f"{written} plays {type(theirs).__name__}, the first player {type(world).__name__}", "players")
    try:
        if spec(theirs.all_sides()) != game:
            raise BadRequest("its world has other observations, actions or rewards than the first player's")
        path, run = checkpoint_of(Path(place[0]), place[1])
        state = saved_policy(experiment, path, run, None).policy
        if state is None:
            raise BadRequest(f"{path} holds no policy")
        learner = learner_of(experiment, state, torch.device("cpu"), path)
    except BadRequest as error:
        raise BadRequest(f"{written}: {error.args[0]}", "players") from None
    network = cast("NetworkLearner[Any]", learner)
    form = _form(network)
    digest = hashlib.sha256(form.encode())
    for x in network.weights():
        digest.update(x.contiguous().numpy().tobytes())
    return Player(name, digest.hexdigest()[:16], place[0], path.name, int(run["steps"]), network, form)


def _form(learner: NetworkLearner[Any]) -> str:
    """What policies must have in common to decide in one pass: all but the weights."""
    hyper = learner.hyper
    parts = [type(hyper).__name__, repr(hyper.net), hyper.normalize_inputs, [tuple(x.shape) for x in learner.weights()]]
    return repr([*parts, [x.tolist() for x in learner.extra] if hyper.policy_head else []])
