"""States as trees: the form that a loaded one must have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evorl.record.state_tree import require_form, require_lists

NEW: dict[str, Any] = {
    "steps": 0, "rate": 0.5, "name": "a", "open": True, "best": None, "numbers": [], "rounds": [0, 0],
    "inner": {"told": np.int64(0)}, "weights": np.zeros(3), "window": {},
}  # fmt: skip
LATER: dict[str, Any] = {
    "steps": 7, "rate": 1, "name": "b", "open": False, "best": [2.0, 5], "numbers": [1, 2], "rounds": [3, 2],
    "inner": {"told": 3}, "weights": np.ones(3), "window": {"train/return": [1.0]},
}  # fmt: skip


def test_a_later_state_of_the_same_object_has_its_form() -> None:
    require_form(LATER, NEW)


def test_keys_of_other_versions_are_left_to_who_loads() -> None:
    require_form({"older": {"x": 1}}, NEW)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("steps", 0.5, "run/steps is 0.5, not an integer"),
        ("steps", True, "run/steps is True, not an integer"),
        ("steps", None, "run/steps is absent, not an integer"),
        ("steps", {"a": {"b": 1}}, r"run/steps is \{'a': \{'b': 1\}\}, not an integer"),
        ("rate", "x", "run/rate is 'x', not a number"),
        ("rate", False, "run/rate is False, not a number"),
        ("name", 1, "run/name is 1, not a text"),
        ("open", 0, "run/open is 0, not true or false"),
        ("numbers", {}, r"run/numbers is \{\}, not a list"),
        ("rounds", [1, [2]], r"run/rounds is \[2\], not an integer"),
        ("rounds", ["a", 1], "run/rounds is 'a', not an integer"),
        ("inner", 3, "run/inner is 3, not a mapping"),
        ("inner", {"told": {}}, r"run/inner/told is \{\}, not an integer"),
        ("inner", None, "run/inner is absent, not a mapping"),
    ],
)
def test_another_kind_of_value_is_named(key: str, value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=f"^{told}$"):
        require_form({**LATER, key: value}, NEW, ("run",))


def test_lists_have_no_mappings() -> None:
    require_lists({"a": {"b": [1, [2, [None]]]}})
    with pytest.raises(TypeError, match=r"^a/b is a list with a mapping$"):
        require_lists({"a": {"b": [1, [2, {"c": 3}]]}})
