"""Reads the state of a population in a checkpoint of an older version, whose keys had other names."""

from __future__ import annotations

from evorl.ec.core import pack_evaluations
from evorl.util.types import StateDict

RENAMED = {
    "flying": "in_flight",
    "given": "task",
    "in_vain": "failures_in_a_row",
    "origin": "warm_start",
    "values": "leader_genes",
    "_done": "journal_lines",
}


def in_present_form(state: StateDict) -> StateDict:
    """Return the state of a population with the keys of this version; a state of this version is returned as it is."""
    if "in_flight" in state:
        return state
    state = _renamed(state)
    state["in_flight"] = {number: _renamed(request) for number, request in state["in_flight"].items()}
    if "leader" in state and "ranking" not in state:  # the highest fitness of one evaluation was named best
        numbers = state["leader"]["individuals"]["id"]
        state |= {
            "candidates": pack_evaluations([]), "ranking": [[number, *state["best"]] for number in numbers],
            "named": state["best"], "considered": [], "selected": None,
        }  # fmt: skip
    return {"failures_in_a_row": 0, "leader_genes": {}, "journal_lines": state["evaluations"], **state}


def _renamed(state: StateDict) -> StateDict:
    return {RENAMED.get(key, key): part for key, part in state.items()}
