"""Which periods of evaluations and checkpoints follow from a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from evorl.training.periods import in_steps, is_default


@pytest.mark.parametrize(
    ("every", "steps", "words", "default"),
    [
        (None, 50_000, ["budget.steps=50000"], True),
        (500, 5_000, ["budget.steps=5000"], True),
        (500, 5_000, [], True),
        (500, 9_000, ["budget.steps=5_000"], True),  # resumed with a larger budget
        (500, 5_000, ["budget.steps=5000", "eval.every=500"], False),
        (500, 5_000, ["++eval.every=500"], False),
        (500, 5_000, ["eval={every:500}"], False),
        (600, 5_000, ["budget.steps=5000"], False),  # of a file
        (600, None, ["budget.steps=x"], False),
        (200, 2e3, [], True),  # as the config has it
        (200, 9_000, ["budget.steps=2e3"], True),
        (200, 2000.5, ["budget.steps=inf"], False),
    ],
)
def test_a_period_is_a_default_unless_it_was_chosen(
    every: int | None, steps: float | None, words: Sequence[str], default: bool
) -> None:
    assert is_default("eval", {"eval.every": every, "budget.steps": steps}, words) == default


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        ({"eval.every": 7}, 7),
        ({"eval.every": 7.0}, 7),
        ({"eval.every": None, "mdp.budget": 90}, 9),
        ({"eval.every": None, "mdp.budget": 9e1}, 9),
        ({"eval.every": None}, None),
        ({}, None),
    ],
)
def test_a_period_of_null_is_a_part_of_the_budget_of_the_world(config: dict[str, Any], steps: int | None) -> None:
    assert in_steps("eval", config) == steps
