"""Results of a run that goes on are kept."""

from __future__ import annotations

import json
from pathlib import Path

from evorl.record.result import read_result, set_aside


def test_results_of_as_many_steps_are_all_kept(tmp_path: Path) -> None:
    for fitness, steps in enumerate((512, 512, 512, 1024)):
        set_aside(tmp_path)
        result = {"steps": steps, "seconds": 1.0, "fitness": fitness, "eval": {}}
        (tmp_path / "result.json").write_text(json.dumps(result))
    kept = ("result.512.json", "result.512.1.json", "result.512.2.json", "result.json")
    found = [read_result(tmp_path, name) for name in kept]
    assert [one and (one["steps"], one["fitness"]) for one in found] == [(512, 0), (512, 1), (512, 2), (1024, 3)]
