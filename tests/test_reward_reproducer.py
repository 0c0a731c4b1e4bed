"""The table of rewards that evolve: how runs are read, and the whole program made tiny."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.lamarckian.reward import KINDS, TABLE, analyse, arrived, measured
from evorl.cli.config import experiment_of_words
from evorl.reproduction import papers
from evorl.reproduction.loop import Request, first_job, reproduce
from evorl.reproduction.table import Results


def run(place: Path, kind: str, seed: int, returns: list[float], last: float) -> SimpleNamespace:
    place.mkdir()
    lines = [
        {
            "id": n,
            "parents": [],
            "role": "",
            "birth": 0,
            "genes": {},
            "objectives": {"fitness": x},
            "step": 10 * (n + 1),
        }
        for n, x in enumerate(returns)
    ]
    (place / "population.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"ec.reward.kind": kind, "ec.objectives": ["fitness"]}
    return SimpleNamespace(directory=place, seed=seed, config=config, result={"fitness": last})


def test_who_arrives_is_told_by_kind(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "a", "none", 0, [-200, -200, -200], -200),
        run(tmp_path / "b", "immediate", 1, [-200, -150, -180], -140),
        run(tmp_path / "c", "immediate", 0, [-200, -200, -190], -160),
    ]
    assert analyse(Results("ci", [], {})) is None
    found = analyse(Results("ci", runs, {}))
    assert found is not None
    assert [row[:2] + row[3:] for row in found.rows] == [
        ["none", "1", "0", "-", "-"], ["immediate", "2", "2", "25", "25 ± 64"]
    ]  # fmt: skip
    assert found.rows[1][2] == "-150 ± 127" and found.data["runs"]["immediate"][1]["best"] == [-200, -150, -150]
    assert found.also[0].rows == []  # no seed arrived both with and without
    late = {("none", 0): 3, ("none", 1): 1, ("potential", 0): 0, ("potential", 1): 2}
    pairs = [run(tmp_path / f"{kind}{seed}", kind, seed, [-200] * n + [-150], -150) for (kind, seed), n in late.items()]
    paired = analyse(Results("ci", pairs, {}))
    assert paired is not None and paired.also[0].rows == [["potential", "2", "10 ± 254", "1 : 1"]]
    assert arrived({"best": [-200], "steps": [10]}) is None
    assert measured(found.data).startswith("none -200 (arrived: 0 of 1 seeds); immediate -150 ± 127 (arrived: 2 of 2")


def test_all_arms_have_the_same_words_but_the_reward() -> None:
    words = TABLE.profiles["ci"].parts[0].words
    assert f"ec.reward.kind={','.join(KINDS)}" in words
    assert experiment_of_words(first_job(words)).ec.reward.kind == "none"


@pytest.mark.slow
def test_a_tiny_comparison_is_reported(tmp_path: Path) -> None:
    asked = Request("lamarckian/reward", "tiny", (), tmp_path / "runs", tmp_path / "out", False)
    reproduce(papers.table("lamarckian/reward"), asked)
    told = json.loads((tmp_path / "out" / "reward.json").read_text())
    assert [row[0] for row in told["rows"]] == [*KINDS]
