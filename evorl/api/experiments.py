"""Experiments made of dataclasses, without Hydra, and their runs."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from evorl.api.plain import plain
from evorl.cli import config
from evorl.cli.groups import choice_of_class
from evorl.cli.overrides import GROUPS
from evorl.jobs import job
from evorl.mdp.core import World
from evorl.rl.core import Hyper
from evorl.run import begin
from evorl.training.experiment import Experiment
from evorl.util import command
from evorl.util.errors import BadRequest
from evorl.util.typed import typed, unknown
from evorl.util.types import StateDict


def experiment(mdp: World, rl: Hyper, **others: Any) -> Experiment:
    """Return an experiment made of dataclasses: a world, a learner, and the other fields of `Experiment`.

        evorl.experiment(Pong(), PPO(lr=1e-3), budget=Budget(steps=100_000), seed=1)

    `evorl.run` runs it, and its run directory is like any other. Raises `BadRequest`, as for a config: for a value that
    its field does not take, and if the world cannot be used. Also if a class is of a script, a notebook or a function,
    from where nothing that loads the run could import it.
    """
    kinds = typing.get_type_hints(Experiment, include_extras=True)
    for name in others:
        if name not in kinds:
            raise unknown(name, kinds)
    config.check_device(others.get("device"))
    made = Experiment(**{name: _typed(name, x, kinds[name]) for name, x in {"mdp": mdp, "rl": rl, **others}.items()})
    try:
        made.mdp.ready()
    except BadRequest as error:
        raise error.under("mdp") from None
    return made


def run_experiment(made: Experiment) -> tuple[Path, tuple[str, ...]]:
    """Run an experiment in a new directory below ``runs/``, which is returned with what its config is trusted with."""
    made = experiment(**_by_field(made, lambda name, value: value))
    data = _by_field(made, lambda name, value: _node(name, value) if name in GROUPS else plain(value, name))
    trusted = (*made.packages, *made.mdp.commands())
    words = [command.trust_word(*trusted)] if trusted else []
    with config.opened() as hydra:
        composed = config.compose(hydra, [f"seed={made.seed}", *words])
        for group in GROUPS:
            composed.hydra.runtime.choices[group] = choice_of_class(hydra, group, data[group].get("_target_"))
        place, plain_config = config.directory_of(composed), config.resolved(composed)
    checked, whole = job.checked_experiment({**plain_config, **data}, words)
    return begin(composed, place, words, checked, whole, []), trusted


def _by_field(made: Experiment, what: Callable[[str, Any], Any]) -> StateDict:
    return {field.name: what(field.name, getattr(made, field.name)) for field in fields(made)}


def _typed(name: str, value: Any, kind: Any) -> Any:
    """A field of an experiment, checked as the config is. Raises `BadRequest` at the field."""
    if name not in GROUPS:
        return typed(plain(value, name), kind, name)
    (base,) = (arm for arm in typing.get_args(kind) or (kind,) if arm is not type(None))
    if value is None and base is not kind:
        return None
    if not isinstance(value, base):
        what = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
        raise BadRequest(f"expected an object of a class of {base.__name__}, got {what}{_meant(name, value)}", name)
    node = _node(name, value)
    return config.group_object(node, base, name, [node["_target_"].partition(".")[0]])


def _meant(group: str, value: Any) -> str:
    """What to write in place of a class, or of a name."""
    if isinstance(value, type):
        return f"; did you mean {value.__name__}()?"
    return f"; did you mean evorl.run({f'{group}={value}'!r})?" if isinstance(value, str) else ""


def _node(group: str, value: Any) -> StateDict:
    """The object of a group as its config; an empty one where nothing is chosen. Raises `BadRequest`."""
    return {} if value is None else {"_target_": _import_path(group, type(value)), **plain(value, group)}


def _import_path(group: str, cls: type) -> str:
    """The path by which whoever loads the run imports a class. Raises `BadRequest` where there is none."""
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        place = "a function" if "<locals>" in cls.__qualname__ else "a script or a notebook"
        raise BadRequest(
            f"{cls.__name__} is a class of {place}, which cannot be imported again: put it into a file (module)", group
        )
    return f"{cls.__module__}.{cls.__qualname__}"
