"""Importance of keys: a planted effect is found, chance is told as such."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from evorl.analysis.groups import Group, group_runs
from evorl.analysis.importance import importance, lacking, wanted
from evorl.analysis.runs import RunRecord


def sweep(noise: float = 0.3, seeds: int = 2) -> list[Group]:
    """Fitness rises with ``rl.lr`` on a logarithmic grid, is higher for ppo, and does not depend on ``rl.x``."""
    rng = np.random.default_rng(0)
    points = product((1e-4, 1e-3, 1e-2), (0.9, 0.99), ("a2c", "ppo"), range(seeds))
    return group_runs(
        [
            RunRecord(
                directory=Path(str(number)), config={"rl.lr": lr, "rl.x": x, "kind": kind, "seed": seed},
                result={"fitness": 3 * np.log10(lr) + 2 * (kind == "ppo") + noise * rng.normal()},
            )
            for number, (lr, x, kind, seed) in enumerate(points)
        ]
    )  # fmt: skip


def test_a_planted_effect_is_found() -> None:
    """The variance of 3 log10(lr) is 6, that of the algorithm 1: shares of 0.85 and 0.14."""
    found = importance(sweep())
    assert found is not None
    shares = {row["key"]: row["importance"] for row in found.rows}
    assert [*shares][:2] == ["rl.lr", "kind"] and sum(shares.values()) <= 1 + 1e-9
    assert shares["rl.lr"] == pytest.approx(0.85, abs=0.1) and shares["kind"] == pytest.approx(0.14, abs=0.08)
    assert shares["rl.x"] < 0.02 and shares["seed"] < 0.02
    best = {row["key"]: row["best value"] for row in found.rows}
    assert best["rl.lr"] == "0.01" and best["kind"] == "ppo" and best["seed"] == ""
    correlations = {row["key"]: row["correlation"] for row in found.rows}
    assert correlations["rl.lr"] > 0.8 and correlations["kind"] is None
    again = importance(sweep())
    assert again is not None and found.text == again.text


def test_few_runs_or_one_key_have_no_importance() -> None:
    assert not wanted(sweep()[:3])
    runs = [RunRecord(directory=Path(str(s)), config={"rl.lr": s % 2, "seed": s}) for s in range(20)]
    assert not wanted(group_runs(runs)) and importance(group_runs(runs)) is None


def test_without_the_library_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacking() == ""
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert lacking().startswith("The importance of keys is left out: optuna is missing. pip install")
