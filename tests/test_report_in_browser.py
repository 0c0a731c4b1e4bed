"""The page in a real browser: curves, controls, parallel coordinates, and the live server. Needs a Chromium."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import PATIENCE_MS, needs_chromium
from test_report import write_run, write_sweep

from evorl.report import main

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(1500),
    needs_chromium,
]


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose errors, and whose requests to other places than this machine, fail the test."""
    shown = browser.new_page(viewport={"width": 1200, "height": 2600})
    shown.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.on("request", lambda asked: asked.url.startswith(("file:", "http://127.0.0.1")) or wrong.append(asked.url))
    yield shown
    assert wrong == []
    shown.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three keys vary, so that there are parallel coordinates."""
    place = tmp_path_factory.mktemp("browser")
    points = [(lr, gamma, clip) for lr in (0.01, 0.001) for gamma in (0.9, 0.99) for clip in (0.1, 0.2)]
    for job, (lr, gamma, clip) in enumerate(points):
        write_run(place / "sweep" / str(job), lr, 1, gamma=gamma, clip=clip)
    assert main([str(place / "sweep"), f"out={place / 'report'}"]) == 0
    return place / "report" / "index.html"


def drawn(page: Any, number: int = 0) -> str:
    """The pixels of a chart."""
    page.locator(".chart").nth(number).locator("canvas").wait_for()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return str(page.evaluate(f"document.querySelectorAll('.chart canvas')[{number}].toDataURL()"))


def test_controls_change_the_curves(page: Any, report: Path) -> None:
    page.goto(f"file://{report}")
    linear = drawn(page)
    page.select_option("select[name=y]", "log")
    assert drawn(page) != linear
    page.select_option("select[name=y]", "linear")
    page.select_option("select[name=x]", "seconds")
    assert drawn(page) != linear
    page.select_option("select[name=x]", "steps")
    assert drawn(page) == linear
    page.uncheck("input[name=runs]")
    assert drawn(page) != linear
    page.check("input[name=runs]")
    assert drawn(page) == linear


def zoom(page: Any) -> None:
    """Choose a part of the first chart."""
    box = page.locator(".chart .u-over").first.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 22, steps=4)
    page.mouse.up()


def show_all(page: Any) -> None:
    box = page.locator(".chart .u-over").first.bounding_box()
    page.mouse.dblclick(box["x"] + 0.5 * box["width"], box["y"] + 20)


def test_a_drag_zooms_and_a_double_click_shows_all_again(page: Any, report: Path) -> None:
    page.goto(f"file://{report}")
    whole = drawn(page)
    zoom(page)
    zoomed = drawn(page)
    assert zoomed != whole
    page.uncheck("input[name=runs]")
    page.check("input[name=runs]")
    assert drawn(page) == zoomed  # what is drawn anew stays zoomed
    show_all(page)
    assert drawn(page) == whole
    zoom(page)
    page.select_option("select[name=x]", "seconds")
    page.select_option("select[name=x]", "steps")
    assert drawn(page) == whole  # another axis shows all


def test_names_hide_their_curves_and_stand_alone(page: Any, report: Path) -> None:
    page.goto(f"file://{report}")
    every = drawn(page)
    buttons = page.locator("button[data-group]")
    buttons.nth(1).click()
    assert buttons.nth(1).get_attribute("aria-pressed") == "false" and drawn(page) != every
    buttons.nth(1).click()
    assert drawn(page) == every
    buttons.nth(2).dblclick()
    pressed = [buttons.nth(number).get_attribute("aria-pressed") for number in range(buttons.count())]
    assert pressed == ["true" if number == 2 else "false" for number in range(8)]
    buttons.nth(2).dblclick()
    assert drawn(page) == every


def test_the_same_name_in_two_worlds_is_one_choice(page: Any, tmp_path: Path) -> None:
    for world in ("Pong", "Duel"):
        for job, lr in enumerate((0.01, 0.001)):
            write_run(place := tmp_path / "runs" / f"{world}-{job}", lr, 1)
            config = place / ".hydra" / "config.yaml"
            config.write_text(config.read_text().replace("Pong", world))
    assert main([str(tmp_path / "runs" / "*"), f"out={tmp_path / 'report'}"]) == 0
    page.goto(f"file://{tmp_path / 'report' / 'index.html'}")
    buttons = page.locator("button[data-group]")
    first, *others = [buttons.nth(number).get_attribute("data-label") for number in range(buttons.count())]
    assert first in others
    buttons.nth(0).click()
    pressed = {
        (buttons.nth(number).get_attribute("data-label"), buttons.nth(number).get_attribute("aria-pressed"))
        for number in range(buttons.count())
    }
    assert pressed == {(first, "false"), *((label, "true") for label in others if label != first)}


def test_a_curve_tells_its_values(page: Any, report: Path) -> None:
    page.goto(f"file://{report}")
    drawn(page)
    box = page.locator(".chart .u-over").first.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    tip = page.locator(".chart .tip").first
    tip.wait_for(state="visible")
    said = tip.inner_text()
    assert said.splitlines()[0].endswith(" steps") and "rl.lr=0.001" in said
    assert abs(float(said.splitlines()[0].split()[0].replace(",", "")) - 3000) < 300


def test_a_range_of_a_key_fades_the_other_groups(page: Any, report: Path) -> None:
    page.goto(f"file://{report}")
    lines, faded = page.locator(".parallel path"), page.locator(".parallel path.off")
    assert lines.count() == 8 and faded.count() == 0
    assert "rl.lr=" in lines.first.locator("title").text_content()
    box = page.locator(".parallel .grip").first.bounding_box()
    across = box["x"] + box["width"] / 2
    page.mouse.move(across, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(across, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    assert faded.count() == 4
    page.set_viewport_size({"width": 1100, "height": 2600})
    drawn(page)
    assert faded.count() == 4  # drawn anew
    box = page.locator(".parallel .grip").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3)
    assert faded.count() == 0


def test_without_scripts_there_are_pictures_and_tables(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{report}", timeout=PATIENCE_MS)
    shown = page.locator("noscript img")
    assert shown.count() == 5 and all(shown.nth(n).bounding_box()["height"] > 100 for n in range(5))
    assert not page.locator("form.controls").is_visible() and page.locator("table").count() >= 2
    context.close()


def test_a_live_page_follows_its_runs_until_ctrl_c(page: Any, tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "multirun")
    before = set(tmp_path.rglob("*"))
    command = [sys.executable, "-m", "evorl.report", str(sweep), "live=true"]
    root = str(Path(__file__).parents[1])
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": root}
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen("/".join(url.split("/")[:3]) + "/", timeout=60)
            page.goto(url)
            old = drawn(page)
            page.locator("button[data-group]").first.click()
            zoom(page)
            page.locator("details summary").first.click()
            assert "7,000" not in page.inner_text("header")
            with (sweep / "2" / "metrics.jsonl").open("a") as file:
                file.write("00}\n" + json.dumps({"step": 7000, "time": 7.0, "train/return": 90.0}) + "\n")
            page.locator("header", has_text="7,000").wait_for()
            assert page.locator("button[data-group]").first.get_attribute("aria-pressed") == "false"  # choices stay
            assert page.locator("details").first.get_attribute("open") is not None
            zoomed = drawn(page)
            show_all(page)
            assert drawn(page) not in (zoomed, old)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
    page.locator("body.lost").wait_for()
    assert set(tmp_path.rglob("*")) == before
