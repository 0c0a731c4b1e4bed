from pathlib import Path

import pytest

from evorl.record import metrics


def test_page_is_the_registry() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == metrics.page(), "run: python -m evorl.record.metrics > docs/metrics.md"


def test_registered() -> None:
    names = [*(name for name in metrics.METRICS if "<" not in name), "eval/win_mean", "train/return_damage"]
    assert [name for name in names if metrics.is_unregistered(name)] == []
    metrics.check(names)


@pytest.mark.parametrize(
    "name", ["loss/polcy", "return", "", "eval/win", "train/a/b", "train/<result>x y", "xloss/policy"]
)
def test_unregistered(name: str) -> None:
    assert metrics.is_unregistered(name)
    with pytest.raises(ValueError, match="not a registered metric"):
        metrics.check(["train/return", name])


def test_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean loss/policy"):
        metrics.check(["loss/polcy"])


def test_every_metric_has_unit_and_description() -> None:
    assert all(unit and meaning for unit, meaning, _ in metrics.METRICS.values())
