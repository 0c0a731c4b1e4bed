"""The players of a payoff matrix: policies of run directories, and the rule player of their world."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from evorl.cli import config
from evorl.jobs.foreign_policies import foreign_learner, is_foreign
from evorl.jobs.run_players import Place, all_places, check_world, ends_of, experiment_at, names, policy_at
from evorl.mdp.core import Spec, World
from evorl.rl.frozen_policies import form_of
from evorl.rl.network_learner import NetworkLearner
from evorl.training.train import spec
from evorl.util.errors import BadRequest

RULE = "rule"
"""The word for the rule player of the world."""
KEY = "players"


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

    @property
    def weights(self) -> Sequence[Tensor]:
        """What it plays with, as `Learner.weights` lists it; nothing for the rule player."""
        return () if self.learner is None else self.learner.weights()

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

    sb3:FILE and cleanrl:FILE are policies of other libraries. All are read as data. Raises `BadRequest`, with the word
    at fault, unless all play the same game.
    """
    foreign = [word for word in words if is_foreign(word)]
    places = all_places([word for word in words if word != RULE and word not in foreign], KEY, trust, [RULE])
    if not places:
        raise BadRequest("needs a run directory, whose world is played", KEY)
    if len(places) + len(foreign) + (RULE in words) < 2:
        raise BadRequest("needs two players or more", KEY)
    keys = config.read_run_config(Path(places[0].directory), KEY)["mdp"]
    world = experiment_at(places[0], trust, KEY).mdp
    try:
        players = _players(world, places, foreign, RULE in words, trust)
    except BaseException:
        world.close()
        raise
    return Entry(world, keys, tuple(players))


def _players(
    world: World, places: Sequence[Place], foreign: Sequence[str], rule: bool, trust: Sequence[str]
) -> list[Player]:
    """Those of `read`, which play in this world."""
    try:
        game = spec(world.all_sides())
    except BadRequest as error:
        raise BadRequest(f"{places[0]}: {error.args[0]}", KEY) from None
    if game.players != 2:
        raise BadRequest(f"{world.title} has {game.players} sides, and matches are of two", KEY)
    players = [_player(place, name, world, game, trust) for place, name in zip(places, names(places), strict=True)]
    files = [Path(word.partition(":")[2]).with_suffix("") for word in foreign]
    players += [_foreign(word, end, game) for word, end in zip(foreign, ends_of(files), strict=True)]
    if len({player.name for player in players}) < len(players):
        raise BadRequest("two players have the same name", KEY)
    if rule:
        for side in range(game.players):
            try:
                world.one_side(side)
            except BadRequest as error:
                raise BadRequest(f"{RULE}: {error.args[0]}", KEY) from None
        players.append(Player(RULE, RULE))
    return players


def _player(place: Place, name: str, world: World, game: Spec, trust: Sequence[str]) -> Player:
    experiment = experiment_at(place, trust, KEY)
    check_world(place, experiment.mdp, world, game, "the first player", KEY)
    policy = policy_at(place, experiment, KEY)
    return _with(policy.learner, name, place.directory, policy.checkpoint.name, policy.step)


def _foreign(word: str, name: str, game: Spec) -> Player:
    """The player that another library saved; its file stands for a directory."""
    library, _, path = word.partition(":")
    return _with(foreign_learner(word, game, KEY), f"{library}:{name}", path)


def _with(learner: NetworkLearner[Any], name: str, directory: str, checkpoint: str = "", step: int = 0) -> Player:
    """A player that plays with the weights of a learner."""
    form = _form(learner)
    digest = hashlib.sha256(form.encode())
    for x in learner.weights():
        digest.update(x.contiguous().numpy().tobytes())
    return Player(name, digest.hexdigest()[:16], directory, checkpoint, step, learner, form)


def _form(learner: NetworkLearner[Any]) -> str:
    """What policies must have in common to decide in one pass: all but the weights."""
    shapes = [tuple(x.shape) for x in learner.weights()]
    extra = [x.tolist() for x in learner.extra] if learner.hyper.policy_head else []
    return repr([form_of(learner.hyper), shapes, extra])
