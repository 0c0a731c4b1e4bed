"""W&B reports: what is on the page, in the library's own schema."""

import json
from pathlib import Path
from typing import Any

import pytest

from evorl.record import layout, metrics, wandb_report
from evorl.record.wandb_report import Document, Part, RunSet, as_json, build, library

interface = library()
internal = interface.internal

DOCUMENT = Document(
    title="A table", description="of a paper", project="p",
    before=(Part(title="A table", text="| a |\n| --- |\n| 1 |\n"), Part(title="Curve", level=2, pictures=("curve",))),
    sets=(RunSet(label="a (n=2)", project="p", runs=("x", "y")), RunSet(label="b's (n=1)", project="q", runs=("z",))),
    metrics=("train/return", "eval/return_mean", "eval/win_mean", "loss/policy", "hardware/cpu_driver", "odd/one"),
    after=(Part(title="Pictures", pictures=("one", "two")),),
    pictures={"curve": "/curve.png", "one": "/1.png", "two": "/2.mp4"},
)  # fmt: skip


def made(document: Document = DOCUMENT, **address: str) -> dict[str, Any]:
    return as_json(build(document, "", "the-report"), "the-report", **address)


def check_schema(found: dict[str, Any]) -> Any:
    """The library reads the JSON, writes the same, and makes a report of it that it would write, too."""
    model = internal.ReportViewspec.model_validate(found)
    assert without_defaults(json.loads(model.model_dump_json(by_alias=True, exclude_none=True))) == found
    report = interface.Report._from_model(model)
    assert not any("Unknown" in type(block).__name__ for block in report.blocks)
    again = json.loads(report._to_model().spec.model_dump_json(by_alias=True, exclude_none=True))
    assert without_defaults(again) | {"width": "fluid"} == found["spec"]  # reading drops the width
    return report


def without_defaults(node: Any) -> Any:
    """Without the empty lists of comments that reading adds to headings."""
    if isinstance(node, dict):
        return {key: without_defaults(x) for key, x in node.items() if (key, x) != ("inlineComments", [])}
    return [without_defaults(x) for x in node] if isinstance(node, list) else node


def test_schema_and_content() -> None:
    report = check_schema(made())
    kinds = [(type(block).__name__, getattr(block, "text", "")) for block in report.blocks]
    assert kinds == [
        ("TableOfContents", ""), ("H1", "A table"), ("MarkdownBlock", DOCUMENT.before[0].text),
        ("H2", "Curve"), ("PanelGrid", ""), ("H1", "Curves"),
        ("H2", "Learning"), ("PanelGrid", ""), ("H2", "Losses and policy"), ("PanelGrid", ""),
        ("H2", "Speed and system"), ("PanelGrid", ""), ("H1", "Pictures"), ("PanelGrid", ""),
    ]  # fmt: skip
    pictures, learning = report.blocks[4], report.blocks[7]
    assert [panel.media_keys for panel in pictures.panels] == [["report/curve"]]
    assert [one.filters for one in pictures.runsets] == ["Metric(\"ID\") in ['the-report']"]
    assert [(one.name, one.filters) for one in learning.runsets] == [
        ("a (n=2)", "Metric(\"ID\") in ['x', 'y']"), ("b's (n=1)", "Metric(\"ID\") in ['z']")
    ]  # fmt: skip
    shown = [(panel.title, panel.x.name, [y.name for y in panel.y]) for panel in learning.panels]
    assert shown == [
        ("return", "step", ["train/return", "eval/return_mean"]), ("results", "step", ["eval/win_mean"])
    ]  # fmt: skip
    assert [panel.groupby_rangefunc for panel in learning.panels] == ["minmax", "minmax"]


def test_equal_documents_are_equal_files() -> None:
    assert made() == made()


def test_charts_do_not_overlap() -> None:
    document = Document(title="t", description="", project="p", sets=DOCUMENT.sets, metrics=tuple(
        name for name in metrics.METRICS if "<" not in name))  # fmt: skip
    for block in check_schema(made(document)).blocks:
        if isinstance(block, interface.PanelGrid):
            cells = [
                (x, y) for panel in block.panels for x in range(panel.layout.x, panel.layout.x + panel.layout.w)
                for y in range(panel.layout.y, panel.layout.y + panel.layout.h)
            ]  # fmt: skip
            assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


def test_no_curves_without_runs() -> None:
    found = made(Document(title="t", description="", project="p", metrics=("train/return",)))
    assert [block["type"] for block in found["spec"]["blocks"]] == ["paragraph", "table-of-contents", "paragraph"]
    check_schema(found)


def test_single_runs_are_not_averaged() -> None:
    document = Document(title="t", description="", project="p", sets=DOCUMENT.sets[1:], metrics=("train/return",))
    (grid,) = (one for one in check_schema(made(document)).blocks if isinstance(one, interface.PanelGrid))
    assert grid.panels[0].groupby is None


def test_offline(tmp_path: Path) -> None:
    """Nothing is sent, and the name stays."""
    wandb_report.write(DOCUMENT, tmp_path)
    found = json.loads((tmp_path / "wandb_report.json").read_text())
    check_schema(found)
    wandb_report.write(DOCUMENT, tmp_path)
    assert json.loads((tmp_path / "wandb_report.json").read_text()) == found
    assert found["name"] == (tmp_path / "wandb" / "evorl.id").read_text() and not found["id"]


# ------------------------------------------------------------------ layout


def test_every_metric_has_one_chart() -> None:
    shown = [name for section in layout.charts().values() for names in section.values() for name in names]
    in_tables = [name for name in metrics.METRICS if name.endswith(("_std", "_min", "_max")) and "eval/" in name]
    assert sorted(shown + in_tables) == sorted(metrics.METRICS)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("train/return", "train/return"), ("train/return_a", "train/return_<reward>"), ("train/win", "train/<result>"),
        ("eval/win_mean", "eval/<result>_mean"), ("eval/return_mean", "eval/return_mean"),
        ("hardware/gpu_0", "hardware/gpu_<gpu>"), ("hardware/gpu_memory_0", "hardware/gpu_memory_<gpu>"),
        ("hardware/energy_gpu_1", "hardware/energy_gpu_<gpu>"), ("odd/one", None), ("train/returns ", None),
    ],
)  # fmt: skip
def test_registered(name: str, entry: str | None) -> None:
    assert layout.registered(name) == entry
    assert [one for one in metrics.METRICS if layout.registered(name) == one] == ([] if entry is None else [entry])


def test_charts_of_some_metrics() -> None:
    assert layout.charts_of(["hardware/cpu_worker_1", "eval/return_mean", "hardware/cpu", "odd/one"]) == {
        "Learning": {"return": ["eval/return_mean"]},
        "Speed and system": {"processor time": ["hardware/cpu", "hardware/cpu_worker_1"]},
    }
