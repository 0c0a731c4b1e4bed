"""Continues a population with other genes or other bounds: ``resume=RUN_DIR`` with ``ec.genes``.

Individuals keep the values of their genes by name, clipped to the new bounds (`evorl.ec.space_change`). A new gene
begins at the config's value, or is drawn at random if its range does not contain that value. A removed gene falls back
to the config's value. Each evolver converts its own state (`Evolver.remap_state`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from evorl.ec.core import Evolver, IndependentEvolution
from evorl.ec.reward import REWARD
from evorl.ec.space import Space
from evorl.ec.space_change import SpaceChange
from evorl.population.genes import genes, value_of
from evorl.population.old_states import in_present_form
from evorl.training.experiment import Experiment
from evorl.util.types import StateDict


def remap_genes(state: StateDict, experiment: Experiment, evolver: Evolver, present: Space, past: Any) -> StateDict:
    """Convert the state of a `Population` to the space ``present``; return it unchanged if the genes are the same.

    ``evolver`` will load the result. ``past`` is the former ``ec.genes``, used if the state does not contain it; None
    means the present one. Raises `BadRequest` if ``past`` is no longer valid.
    """
    assert isinstance(experiment.ec, IndependentEvolution)
    state = in_present_form(state)
    tree = state.get("genes", experiment.ec.genes if past is None else past)
    # as text, which also compares the order of the genes: it is the order of coordinates
    if json.dumps(tree) == json.dumps(experiment.ec.genes):
        return state
    # weights of an evolved reward are no keys, and a resume leaves them as they are
    reward = tuple(gene for gene in present.genes if gene.name.startswith(REWARD))
    usual = {gene.name: value_of(experiment, gene.name) for gene in present.genes if gene not in reward}
    before = replace(present, genes=genes(tree, experiment) + reward)
    move = SpaceChange(before, present, usual, experiment.seed)
    if move.before.genes == present.genes:  # the same genes, written differently
        return {**state, "genes": experiment.ec.genes}
    moved = evolver.remap_state(state["evolver"], move)
    tasks = [state["in_flight"][str(number)] for number in range(len(state["in_flight"]))]
    evolver.load_state_dict(moved)
    in_flight = [move.individuals(task) for task in tasks if evolver.due >= set(task["id"])]
    best = {name: move.evaluations(state[name]) for name in ("leader", "candidates")}
    return {
        **state, "genes": experiment.ec.genes, "evolver": moved, **best,
        "in_flight": {str(number): task for number, task in enumerate(in_flight)},
    }  # fmt: skip
