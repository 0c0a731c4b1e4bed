"""A run with far more metrics than a picture holds: the first are drawn, the others told."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evorl.analysis.content import MAX_PANELS, gather
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.sources import Choices, Sources


def run(metrics: int, directory: Path) -> RunRecord:
    x = np.arange(1.0, 4.0)
    names = ["train/return", *(f"custom/{number:03}" for number in range(metrics))]
    return RunRecord(
        directory=directory, config={"seed": 1}, choices={"mdp": "pong"}, series=dict.fromkeys(names, Series(x, x, x))
    )


def test_metrics_beyond_the_most_are_told_and_left_out(tmp_path: Path) -> None:
    content = gather(Sources(runs=[run(230, tmp_path)]), Choices())
    (part,) = content.worlds
    shown = [panel.metric for panels in part.others.values() for panel in panels]
    assert shown == [f"custom/{number:03}" for number in range(MAX_PANELS)]
    assert list(content.notes) == ["left out: 30 metrics of pong beyond 200; csv=true writes all"]


def test_as_many_as_a_picture_holds_are_all_drawn(tmp_path: Path) -> None:
    content = gather(Sources(runs=[run(MAX_PANELS, tmp_path)]), Choices())
    assert sum(map(len, content.worlds[0].others.values())) == MAX_PANELS and not content.notes


def test_a_result_with_the_name_of_a_number_of_evaluations_is_drawn(tmp_path: Path) -> None:
    x = np.arange(1.0, 4.0)
    names = ("train/return", "eval/hp_min_mean", "eval/hp_min_std", "eval/return_min")
    record = RunRecord(
        directory=tmp_path, config={"seed": 1}, choices={"mdp": "pong"}, series=dict.fromkeys(names, Series(x, x, x))
    )
    (part,) = gather(Sources(runs=[record]), Choices()).worlds
    assert [panel.metric for panels in part.others.values() for panel in panels] == ["eval/hp_min_mean"]
