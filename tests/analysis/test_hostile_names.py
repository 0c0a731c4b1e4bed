"""A report on runs whose names and reasons try to control the terminal, the page or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from evorl.report import main

EVIL = "\x1b]0;x\x07\x9b2J\u202e</script><img src=x onerror=alert(1)>\"'&\r"
"""Sets a terminal's title, clears it, turns text around, and ends an element of a page."""
SHORT = "\x1b\x9b\u202e<&"
CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def write_run(directory: Path, seed: int, lr: float) -> None:
    (directory / ".hydra").mkdir(parents=True)
    config = {
        "mdp": {"_target_": "x.World", "kind": f"=cmd{EVIL}"},
        "rl": {"_target_": "x.PPO", "lr": lr, f"key{EVIL}": f"@{lr}{EVIL}", "offset": -lr},
        "seed": seed,
    }
    (directory / ".hydra" / "config.yaml").write_text(json.dumps(config))
    choices = {"mdp": f"world{EVIL}", "rl": f"ppo{EVIL}"}
    (directory / ".hydra" / "hydra.yaml").write_text(json.dumps({"hydra": {"runtime": {"choices": choices}}}))
    (directory / "provenance.json").write_text(json.dumps({"evorl": f"1.0{EVIL}", "argv": [f"+run{EVIL}", str(seed)]}))
    lines = [{"step": k, "time": k, "train/return": k + seed, f"loss/{EVIL}": k} for k in range(1, 4)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (directory / "failure.json").write_text(json.dumps({"reason": f"RuntimeError: {EVIL}\n\n-1+1", "traceback": ""}))
    individual = {
        "id": 0, "parents": [], "role": f"first{EVIL}", "birth": 0, "genes": {f"gene{SHORT}": f"=1{SHORT}"},
        "objectives": {"fitness": 1.5}, "results": {}, "step": 1,
    }  # fmt: skip
    log = [individual, individual | {"id": 1, "step": 2, "genes": {f"gene{SHORT}": f"=2{SHORT}"}}]
    (directory / "population.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile")
    for job, (seed, lr) in enumerate([(1, 0.1), (2, 0.2)]):
        write_run(place / f"sweep{EVIL.replace('/', '')}" / f"={job}{EVIL.replace('/', '')}", seed, lr)
    stdout, sys.stdout = sys.stdout, io.StringIO()
    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        [sweep] = place.iterdir()
        assert main([str(sweep), f"out={place / 'report'}", "csv=true", "latex=true"]) == 0
        (place / "printed").write_text(sys.stdout.getvalue() + sys.stderr.getvalue())
    finally:
        sys.stdout, sys.stderr = stdout, stderr
    return place


def test_nothing_that_is_printed_controls_the_terminal(reported: Path) -> None:
    text = (reported / "printed").read_text()
    assert r"RuntimeError: \x1b]0;x\x07\x9b2J\u202e" in text and not CONTROL.search(text)


def test_no_file_of_the_report_holds_control_characters(reported: Path) -> None:
    names = {file.suffix: 0 for file in (reported / "report").iterdir()}
    for file in (reported / "report").iterdir():
        if file.suffix != ".png":
            found = CONTROL.search(file.read_bytes().decode())
            assert found is None, (file.name, found)
    assert {".csv", ".tex", ".md", ".html", ".svg"} <= {*names}


def test_pictures_are_well_formed(reported: Path) -> None:
    for file in (reported / "report").glob("*.svg"):
        xml.etree.ElementTree.parse(file)


def test_nothing_leaves_its_element_of_the_page(reported: Path) -> None:
    page = (reported / "report" / "index.html").read_text()
    assert "<img src=x" not in page and "onerror=alert(1)>" not in page
    assert page.count("</script>") == page.count("<script")


def test_cells_are_no_formulas(reported: Path) -> None:
    for file in (reported / "report").glob("*.csv"):
        for row in csv.reader(io.StringIO(file.read_text(), newline="")):
            for cell in row:
                assert not cell.startswith(("=", "@", "+", "\t")), (file.name, cell)
                assert not cell.startswith("-") or float(cell) <= 0, (file.name, cell)
    config = (reported / "report" / "config.csv").read_text()
    assert ",rl.offset,-0.1\n" in config and ",mdp.kind,\"'=cmd" in config


def test_latex_has_one_line_a_row(reported: Path) -> None:
    for file in (reported / "report").glob("*.tex"):
        comment, *lines = file.read_text().splitlines()
        assert comment.startswith("% ") and lines[0].startswith("\\begin{tabular}")
        assert all(line.startswith("\\") or line.endswith(" \\\\") for line in lines)
