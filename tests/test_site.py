"""The site is built without a warning, every module that it names has its docstrings, and its search finds pages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
BROWSER = next((path for name in ("google-chrome", "chromium") if (path := shutil.which(name))), None)
QUESTIONS = {
    "resume a run": "running", "stop a run": "running", "evaluate a policy": "running", "GPU": "running",
    "notebook": "python", "load policy act": "python", "pandas": "python",
    "stable-baselines3": "coming_from", "CleanRL": "coming_from",
    "compare groups": "reports", "live report": "reports", "latex table": "reports",
    "W&B": "records", "tensorboard": "records", "energy": "records",
    "self-play": "opponents", "league": "opponents", "rating": "opponents", "Nash averaging": "opponents",
    "payoff matrix": "opponents", "lifetime": "populations", "objectives": "populations", "warm start": "populations",
    "sweeper": "searches", "hyperparameter search": "searches",
    "kubernetes": "cluster", "ray": "cluster", "workers machines": "cluster",
    "write a world": "worlds", "gymnasium environment": "worlds", "openspiel": "worlds", "pettingzoo": "worlds",
    "onnx": "export", "unity": "export", "play against": "play",
    "clipping ppo": "ppo", "rainbow": "dqn", "twin critics": "td3", "attentive": "samplers", "prioritized": "samplers",
    "own algorithm": "plugins", "plugin": "plugins",
    "vtrace": "vtrace", "cma_es": "evolution", "aes_rl": "shared_critic",
}  # fmt: skip
"""What a reader types, and the page that is among the first three answers."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(place / "trees")]
    done = subprocess.run([*command, str(ROOT / "docs"), str(place / "html")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return place / "html"


@pytest.mark.slow
def test_every_page_is_reached_from_the_first_one(site: Path) -> None:
    index = (site / "index.html").read_text()
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "notebooks").glob("*.ipynb")]:
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / name).exists() and (page.stem == "index" or f'href="{name}"' in index), name


@pytest.mark.slow
def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        for link in re.findall(r'href="([^"#:?]+)["#?]', page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.slow
def test_public_symbols_have_an_entry(site: Path) -> None:
    for module, names in {
        "evorl.api.runs": ["run", "sweep", "resume", "load", "RunResult.plot"], "evorl.api.policy": ["Policy.act"],
        "evorl.mdp.core": ["World", "Arena", "Battle"], "evorl.mdp.spec": ["Spec"],
        "evorl.ec.core": ["Evolver", "Individual"],
    }.items():  # fmt: skip
        text = (site / "api" / f"{module}.html").read_text()
        assert [name for name in names if f'id="{module}.{name}"' not in text] == []


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_search_finds_the_page_of_a_question(site: Path) -> None:
    lost = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        for question, expected in QUESTIONS.items():
            page.goto(f"{(site / 'search.html').as_uri()}?q={question.replace(' ', '+').replace('&', '%26')}")
            page.wait_for_function(
                "document.querySelector('#search-results .search-summary')?.innerText.match(/finished|not match/)"
            )
            links = page.eval_on_selector_all("#search-results li > a", "all => all.map(a => a.getAttribute('href'))")
            first = list(dict.fromkeys(Path(link.partition("#")[0].partition("?")[0]).stem for link in links))[:3]
            if expected not in first:
                lost[question] = (expected, first)
        browser.close()
    assert lost == {}
