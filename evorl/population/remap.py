"""A population that goes on with other genes, or other bounds of them: what ``resume=`` with ``ec.genes`` does.

Individuals keep their genes' values by name, brought within the new bounds (`evorl.ec.space_change`). A gene that is new
begins at the value that the config gave to everybody until now, or is drawn where its range does not have that (a schedule,
another choice, a number beyond it); one that is gone falls back to it. What a search knows beside its individuals it
moves itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evorl.ec.core import Evolver
from evorl.ec.space import Space, Value
from evorl.ec.space_change import Move
from evorl.population.genes import genes
from evorl.training.experiment import Experiment
from evorl.util.types import StateDict


def remapped(state: StateDict, experiment: Experiment, evolver: Evolver, now: Space, past: Any) -> StateDict:
    """The state of an `evorl.population.loop.Population` in the space of ``now``; itself where its genes are the same.

    ``evolver``: the one that will take the state; ``past``: what ``ec.genes`` was where the state does not say it; None
    is what it is now. Raises `BadRequest` where that is no more valid.
    """
    assert experiment.ec is not None
    tree = state.get("genes", experiment.ec.genes if past is None else past)
    if json.dumps(tree) == json.dumps(experiment.ec.genes):  # their order, too: it is that of coordinates
        return state
    usual = {gene.name: value_of(experiment, gene.name) for gene in now.genes}
    move = Move(replace(now, genes=genes(tree, experiment)), now, usual, experiment.seed)
    if move.before.genes == now.genes:  # only written otherwise
        return {**state, "genes": experiment.ec.genes}
    moved = evolver.moved(state["evolver"], move)
    tasks = [state["flying"][str(number)] for number in range(len(state["flying"]))]
    evolver.load_state_dict(moved)
    flying = [move.individuals(task) for task in tasks if evolver.due >= set(task["id"])]
    return {
        **state, "genes": experiment.ec.genes, "evolver": moved, "leader": move.evaluations(state["leader"]),
        "flying": {str(number): task for number, task in enumerate(flying)},
    }  # fmt: skip


def value_of(experiment: Experiment, name: str) -> Value:
    """What the config says at a dotted key."""
    found: Any = experiment
    for key in name.split("."):
        found = found[key] if isinstance(found, Mapping) else getattr(found, key)
    value: Value = found
    return value
