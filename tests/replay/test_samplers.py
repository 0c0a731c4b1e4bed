"""Samplers of transitions: one conformance check for all, and the table of samplers.

The check of samplers of rollouts is in test_rollout_parts.py.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from mutating import check_notices, mutate

from evorl.replay.samplers.attentive import Attentive
from evorl.replay.samplers.conformance import check_transitions
from evorl.replay.samplers.core import Memory, Sampler
from evorl.replay.samplers.nearest import Nearest, NearestTransitions
from evorl.replay.samplers.prioritized import Priorities, Prioritized, PrioritizedKeys
from evorl.replay.samplers.registry import SAMPLERS, RolloutSamplers, SequenceSamplers, TransitionSamplers, sole
from evorl.replay.samplers.uniform import Uniform, uniform
from evorl.util.errors import BadRequest

ROOT, SIZE = Path(__file__).parents[2], 4


KINDS: dict[str, Any] = {
    "uniform": lambda rows: Uniform(None, rows, SIZE),
    "attentive": lambda rows: Attentive(NearestTransitions(candidates=3.0, anneal=20), rows, SIZE),
    "prioritized": lambda rows: Prioritized(PrioritizedKeys(), rows, SIZE),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_conforms(kind: str) -> None:
    check_transitions(KINDS[kind])


def test_the_sampler_of_the_page_conforms() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "samplers.md").read_text(), re.DOTALL)
    exec(code, {})


BROKEN: dict[str, tuple[str, Any, str, str]] = {
    "what the ring has lost": ("uniform", uniform, "(low + (", "((low > 0) * -1 + ("),
    "one sample for all steps": ("uniform", uniform, "first * size, (first", "0 * size, (0 * first"),
    "fewer than asked": ("attentive", Nearest._nearest, "return candidates[picked]", "return candidates[picked[1:]]"),
    "one key for all": ("attentive", Memory.random, "generator(key, step)", "generator(step)"),
    "places for numbers": ("prioritized", Priorities.draw, "self.low + (place - self.low) % self.rows", "place"),
    "the leaves are not restored": (
        "prioritized", Priorities.load_state_dict, "self.high), leaves)", "self.high), np.ones(1))"),
    "weights that nobody knows of": ("uniform", Sampler.weights, "return None", "return np.ones(items.shape)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_the_check_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, function, old, new = BROKEN[name]
    mutate(monkeypatch, function, old, new)
    check_notices(check_transitions, KINDS[kind])


@pytest.mark.parametrize("options", [TransitionSamplers, SequenceSamplers, RolloutSamplers])
def test_options_are_named_for_their_samplers(options: Any) -> None:
    names = [one.name for one in fields(options) if one.name != "own"]  # which are those of plugins
    assert {*names} <= {*SAMPLERS}
    assert options is not RolloutSamplers or names == [*SAMPLERS]


@pytest.mark.parametrize(
    ("sampling", "line"),
    [
        ("prioritised", "sampling: no sampler 'prioritised'; did you mean prioritized?"),
        ("elite", "sampling: no sampler 'elite'; the samplers of this learner are uniform, attentive, prioritized"),
        (
            {"uniform": 0.5, "prioritized": 0.5},
            "sampling: one sampler chooses all transitions, and not uniform and pri",
        ),
    ],
)
def test_a_learner_of_transitions_has_one_sampler(sampling: Any, line: str) -> None:
    with pytest.raises(BadRequest) as raised:
        sole(sampling, SequenceSamplers())
    assert str(raised.value).startswith(line)
    assert sole({"prioritized": 1.0, "uniform": 0.0}, SequenceSamplers()) == sole("prioritized", SequenceSamplers())
