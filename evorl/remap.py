"""A population that goes on with other genes, or other bounds of them: what ``resume=`` with ``ec.genes`` does.

Individuals keep their genes' values by name, brought within the new bounds. A gene that is new begins at the value
that the config gave to everybody until now, or is drawn where that is none of its range (a schedule, another choice);
one that is gone falls back to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from evorl.ec.core import pack, unpack
from evorl.ec.space import Space, Value
from evorl.experiment import Experiment
from evorl.genes import genes
from evorl.util import seed as seeds
from evorl.util.types import StateDict


def remapped(state: StateDict, experiment: Experiment, now: Space, past: Any) -> StateDict:
    """The state of an `evorl.evolve.Population` in the space of ``now``; itself where its genes are the same.

    ``past``: what ``ec.genes`` was where the state does not say it; None is what it is now. Raises `BadRequest` where
    that is no more valid.
    """
    assert experiment.ec is not None
    tree = state.get("genes", experiment.ec.genes if past is None else past)
    if json.dumps(tree) == json.dumps(experiment.ec.genes):  # their order, too: it is that of coordinates
        return state
    before = Space(genes(tree, experiment))
    usual = {gene.name: value_of(experiment, gene.name) for gene in now.genes}
    move = partial(_moved, before=before, now=now, usual=usual, seed=experiment.seed)

    def evaluations(packed: StateDict) -> StateDict:
        return {**packed, "individuals": move(packed["individuals"])}

    evolver = dict(state["evolver"])
    for name in evolver.keys() & {"population", "arrived"}:
        evolver[name] = evaluations(evolver[name])
    evolver["queue"] = move(evolver["queue"])
    return {
        **state, "genes": experiment.ec.genes, "evolver": evolver, "leader": evaluations(state["leader"]),
        "flying": {number: move(task) for number, task in state["flying"].items()},
    }  # fmt: skip


def _moved(packed: StateDict, before: Space, now: Space, usual: Mapping[str, Value], seed: int) -> StateDict:
    """Packed individuals in another space; a choice that is no more is drawn, by the individual's id."""
    found = []
    for one in unpack(packed):
        drawn = now.sample(seeds.generator(seed, "remap", one.id), 1)[0]
        found.append(one._replace(genes=now.coordinates({**usual, **before.values(one.genes)}, drawn)))
    return pack(found)


def value_of(experiment: Experiment, name: str) -> Value:
    """What the config says at a dotted key."""
    found: Any = experiment
    for key in name.split("."):
        found = found[key] if isinstance(found, Mapping) else getattr(found, key)
    value: Value = found
    return value
