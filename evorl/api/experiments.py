"""Experiments made of dataclasses, without Hydra, and their runs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
from hydra.core.hydra_config import HydraConfig

from evorl.cli import config
from evorl.cli.groups import choice_of_class
from evorl.cli.overrides import GROUPS
from evorl.jobs import job
from evorl.mdp.core import World
from evorl.rl.core import Hyper
from evorl.run import begin
from evorl.training.experiment import Experiment
from evorl.util.errors import BadRequest
from evorl.util.types import StateDict


def experiment(mdp: World, rl: Hyper, **others: Any) -> Experiment:
    """Return an experiment made of dataclasses: a world, a learner, and the other fields of `Experiment`.

        evorl.experiment(Pong(), PPO(lr=1e-3), budget=Budget(steps=100_000), seed=1)

    `evorl.run` runs it, and its run directory is like any other. Raises `BadRequest` if the world cannot be used, or if
    a class is of a script, a notebook or a function, from where nothing that loads the run could import it.
    """
    made = Experiment(mdp=mdp, rl=rl, **others)
    _plain(made)  # refuses what a run directory could not hold
    made.mdp.ready()
    return made


def run_experiment(made: Experiment) -> Path:
    """Run an experiment in a new directory below ``runs/``, which is returned."""
    data = _plain(made)
    trust = [f"trust=[{','.join(made.packages)}]"] if made.packages else []
    with config.opened() as hydra:
        composed = config.compose(hydra, [f"seed={made.seed}", *trust])
        for group in GROUPS:
            composed.hydra.runtime.choices[group] = choice_of_class(hydra, group, data[group].get("_target_"))
    HydraConfig.instance().set_config(composed)
    checked, experiment = job.checked_experiment({**config.resolved(composed), **data}, trust)
    return begin(composed, trust, checked, experiment, [])


def _plain(made: Experiment) -> StateDict:
    """An experiment as the config of a run: plain data, with a ``_target_`` in each group."""
    values = {field.name: getattr(made, field.name) for field in fields(made)}
    return {name: _node(name, value) if name in GROUPS else _data(value) for name, value in values.items()}


def _node(group: str, value: Any) -> StateDict:
    """The object of a group as its config; an empty one where nothing is chosen. Raises `BadRequest`."""
    return {} if value is None else {"_target_": _import_path(group, type(value)), **_data(value)}


def _import_path(group: str, cls: type) -> str:
    """The path by which whoever loads the run imports a class. Raises `BadRequest` where there is none."""
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        place = "a function" if "<locals>" in cls.__qualname__ else "a script or a notebook"
        raise BadRequest(
            f"{cls.__name__} is a class of {place}, which cannot be imported again: put it into a file (module)", group
        )
    return f"{cls.__module__}.{cls.__qualname__}"


def _data(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
