"""Load a game of OpenSpiel, or say in one line why it cannot be played."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from math import prod
from typing import Any, Literal, NamedTuple

from evorl.util import command
from evorl.util.errors import BadRequest, nearest, reason

Tensor = Literal["information_state", "observation"]
Parameter = bool | int | float | str


class Loaded(NamedTuple):
    """A game, and what a world asks of it again and again."""

    game: Any
    """The ``pyspiel.Game``."""
    sides: int
    choices: int
    """Actions of the game, of which few are legal in a state."""
    tensors: dict[Tensor, int]
    """What a side can observe, the best first, and its size."""
    zero_sum: bool
    """Or of constant sum."""

    def tensor(self, wanted: Tensor | None) -> Tensor:
        """What a side observes: the best if nothing is wanted. Raises `BadRequest`."""
        best = next(iter(self.tensors))
        if wanted is not None and wanted not in self.tensors:
            name = self.game.get_type().short_name
            raise BadRequest(f"{name} has no {wanted} as numbers; take {best}", "observe")
        return wanted or best


def load(name: str, parameters: Mapping[str, Parameter]) -> Loaded:
    """Return the game of this name, or of this description: ``kuhn_poker(players=3)``.

    Raises `BadRequest` if it is unknown, has no observation as numbers, or draws its chance itself.
    """
    if find_spec("pyspiel") is None:
        raise BadRequest(f"{name} needs more than is installed: {command.install('openspiel')}", "game")
    return _load(name, tuple(sorted(parameters.items())))


@lru_cache(maxsize=8)
def _load(name: str, parameters: tuple[tuple[str, Parameter], ...]) -> Loaded:
    import pyspiel

    known = {registered.short_name: registered for registered in pyspiel.registered_games()}
    plain = name.partition("(")[0].strip()
    if plain not in known:
        raise BadRequest(f"OpenSpiel has no game {plain}{nearest(plain, known)}", "game")
    if plain != name and parameters:
        raise BadRequest(f"{name} names its parameters already: give all of them in mdp.game, or all here", "kwargs")
    allowed = known[plain].parameter_specification
    for key, _ in parameters:
        if key not in allowed:
            choices = nearest(key, allowed) or f"; it has {', '.join(sorted(allowed)) or 'none'}"
            raise BadRequest(f"{plain} has no parameter {key}{choices}", f"kwargs.{key}")
    try:
        with _errors_told_once():
            game = pyspiel.load_game(plain, dict(parameters)) if parameters else pyspiel.load_game(name)
    except Exception as error:  # pyspiel.SpielError, and what its bindings raise
        why = re.sub(r"^SpielError: (/\S+:\d+ )?", "", reason(error))  # without the line of its source
        raise BadRequest(f"{name} cannot be made: {why}", "kwargs" if parameters else "game") from error
    kind = game.get_type()
    if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise BadRequest(f"{name} is a mean-field game, without players who meet", "game")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise BadRequest(f"{name} draws its chance itself, so no key could repeat an episode", "game")
    tensors: dict[Tensor, int] = {}
    with suppress(pyspiel.SpielError):  # declared by games that lack it
        if kind.provides_information_state_tensor:
            tensors["information_state"] = prod(game.information_state_tensor_shape())
        if kind.provides_observation_tensor:
            tensors["observation"] = prod(game.observation_tensor_shape())
    if not tensors:
        raise BadRequest(f"{name} has no observation as numbers", "game")
    zero_sum = kind.utility in (pyspiel.GameType.Utility.ZERO_SUM, pyspiel.GameType.Utility.CONSTANT_SUM)
    return Loaded(game, game.num_players(), game.num_distinct_actions(), tensors, zero_sum)


@contextmanager
def _errors_told_once() -> Iterator[None]:
    """Keep what the library prints about an error before it raises it; show what else it prints."""
    with tempfile.TemporaryFile() as kept:
        shown = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(shown, 2)
            os.close(shown)
        kept.seek(0)
        sys.stderr.write(kept.read().decode("utf-8", "replace"))
