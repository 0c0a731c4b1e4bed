"""Every command that the README and the docs tell people to type is run here, with a tiny budget.

Those of docs/worlds.md and docs/plugins.md are run in tests of their own.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import yaml
from forked import evorl
from harness import script

from evorl.cli.config import experiment_of_words
from evorl.training.train import spec

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
write_conf = script("write_conf")
SMALL = ("+debug=tiny", "record.tensorboard=false")
TINY = {"budget.steps": 1024, "ec.train_steps": 128, "hydra.sweeper.jobs": 6, "episodes": 2}
"""What these words of a page are made."""


def lines(page: Path) -> list[str]:
    """The commands of a page's shell blocks, comments and prompts left out."""
    blocks = re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    text = "\n".join(blocks).replace("\\\n", " ")
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in text.splitlines()]
    return [shlex.join(one) for one in words if one]


COMMANDS = [line for page in PAGES for line in lines(page)]
MAKE = sorted({line for line in COMMANDS if line.startswith("make ")})
EXTRAS = sorted({names for page in PAGES for names in re.findall(r"evorl-suite\[([\w,-]+)\]", page.read_text())})


def ours(page: Path) -> list[str]:
    return [line for line in lines(page) if re.match(r"(python -m evorl\b|evorl )", line)]


def prepare(page: Path, place: Path) -> None:
    """What a reader has by then: the files that the page's blocks name in their first line, and a run."""
    for name, text in re.findall(r"^```\w+\n# ([\w/]+\.\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    if any("RUN_DIR" in line for line in ours(page)):
        done = evorl("run", *SMALL, "mdp.rounds=1", "hydra.run.dir=RUN_DIR", cwd=place)
        assert done.returncode == 0, done.stderr


def shortened(line: str) -> list[str]:
    """The words of a command that come after ``evorl``, made tiny."""
    words = shlex.split(re.sub(r"^(python -m evorl\.|evorl )", "", line))
    given = {word.partition("=")[0] for word in words}
    steps = TINY["budget.steps"] * (2 if "resume" in given else 1)  # to go on
    tiny = {**TINY, "budget.steps": steps}
    words = [f"{key}={tiny[key]}" if (key := word.partition("=")[0]) in tiny else word for word in words]
    if words[0] != "run" or {"resume", "replay", "-h", "--help", "--cfg"} & given:
        return words
    return [*words, *SMALL, *([] if "budget.steps" in given else [f"budget.steps={TINY['budget.steps']}"])]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if ours(page) and page.name not in ("worlds.md", "plugins.md")],
    ids=lambda page: page.name,
)
def test_the_commands_of_a_page_in_their_order(page: Path, tmp_path: Path) -> None:
    prepare(page, tmp_path)
    for line in dict.fromkeys(ours(page)):
        done = evorl(*shortened(line), cwd=tmp_path, WANDB_MODE="offline")
        assert done.returncode == 0, (line, done.stderr)


WRITTEN = re.compile(r"^[^`\n]*python -m evorl\..*$|(?<=`)python -m evorl\.[^`]+(?=`)", re.MULTILINE)
"""Commands wherever they stand: in a block of any kind, after a prompt, or within a sentence."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_shell_can_read_what_stands_there(page: Path) -> None:
    for line in WRITTEN.findall(page.read_text().replace("\\\n", " ")):
        done = subprocess.run(["bash", "-n", "-c", line[line.index("python") :]], capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)


UNRUN = sorted(
    {
        line
        for page in PAGES
        for line in WRITTEN.findall(page.read_text().replace("\\\n", " "))
        if line.startswith("python -m evorl.run ")
        and not re.search(r"=[A-Z_]+\b|/mine|[(…]|\.\.\.|--|resume|replay=r|trust=", line)
    }
    - {*COMMANDS}
)
"""Single runs that are too long for a test, and those within sentences; none with code of the reader (trust=)."""


@pytest.mark.slow
@pytest.mark.parametrize("line", UNRUN)
def test_a_run_that_is_too_long_could_begin(line: str) -> None:
    one = experiment_of_words(shlex.split(line, comments=True)[3:])
    if one.ec is None:
        one.rl.learner(spec(one.mdp), one.seed, torch.device("cpu"))


@pytest.mark.parametrize("line", MAKE)
def test_a_target(line: str) -> None:
    done = subprocess.run([*shlex.split(line), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("names", EXTRAS)
def test_an_extra(names: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*names.split(",")} <= {*extras}


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, *(ROOT / "benchmarks").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert link.startswith(("http", "mailto")) or (page.parent / link).exists(), f"{page}: {link}"


SHARED = {
    **dict.fromkeys(("ppo", "a2c", "a3c", "reinforce"), "algorithms"),
    **dict.fromkeys(("td3", "sac", "ddpg"), "off_policy"),
    "vtrace": "vtrace",
    "impact": "vtrace",
    "dqn": "dqn",
    "r2d2": "r2d2",
}


def flat(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of nested ones, dotted."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def defaults(page: str) -> dict[str, Any]:
    """Those that the table of a page names."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE)
    return dict(flat({key: yaml.safe_load(re.sub(r"^(\d)e-", r"\1.0e-", value)) for key, value in rows}))


@pytest.mark.parametrize("name", SHARED)
def test_the_defaults_on_an_algorithms_page(name: str) -> None:
    """Its table and the shared one together name every key, with the default of its config."""
    lines = (ROOT / "conf" / "rl" / f"{name}.yaml").read_text().splitlines()
    kind = write_conf.target(next(line for line in lines if line.startswith("_target_")))
    conf = dict(flat(msgspec.json.decode(msgspec.json.encode(kind()))))
    shared, optional = defaults(SHARED[name]), {"net.lstm", "net.std", *write_conf.unlisted(kind)}
    if SHARED[name] in {*SHARED} - {name}:  # the page of an algorithm, which has keys of its own
        shared = {key: value for key, value in shared.items() if key in conf}
    told = {**shared, **defaults(name)}
    assert told == {key: value for key, value in conf.items() if key in told or key not in optional}


def test_places_in_the_code_exist() -> None:
    for page in PAGES:
        for file, name in re.findall(r"`(evorl/[\w/]+\.py)(?:: (\w+)[\w.]*)?`", page.read_text()):
            assert name in (ROOT / file).read_text(), f"{page.name}: {file}: {name}"


def test_members_of_classes_exist() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "evorl").rglob("*.py"))
    classes, words = {*re.findall(r"^class (\w+)", source, re.MULTILINE)}, {*re.findall(r"\w+", source)}
    for page in PAGES:
        for kind, member in re.findall(r"`(?:[\w./]+: )?(\w+)\.(\w+)`", page.read_text()):
            assert kind not in classes or member in words, f"{page.name}: {kind}.{member}"


def test_train_and_test_stand_first_in_the_readme() -> None:
    assert [line.split()[:2] for line in lines(ROOT / "README.md")[:2]] == [["make", "train"], ["make", "test"]]
