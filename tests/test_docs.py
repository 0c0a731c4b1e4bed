"""Every command in a block of the README and the docs is run with a tiny budget, or only reads its words.

Those that `ONLY_READ` lists are not run, each for a reason. They end where their work would begin, and so do all others
once more, in a test that is fast. The commands of docs/plugins.md and some of docs/atari.md are run in tests of their
own, and Python blocks in tests/api/test_python_page.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from forked import evorl
from harness import script
from page_commands import EVOLVERS, PAGES, ROOT, blocks, is_read, lines, only_reading, ours, prose, within_sentences

from evorl.mdp.football import Football

write_conf = script("write_conf")
SMALL = ("+debug=tiny", "record.tensorboard=false")
TINY = {"budget.steps": 1024, "ec.train_steps": 128, "hydra.sweeper.jobs": 6, "episodes": 2, "games": 2}
"""What these words of a page are made."""
ONLY_READ = {
    "Atari: minutes of learning": r"mdp=atari|mdp.game=breakout|pong_pixels|runs/breakout|runs/elite",
    "settings of papers": r"experiment=(lamarckian|aes_rl)/",
    "tables, and checks of them: minutes to days": r"^evorl reproduce (?!.*--print).*(profile=|--check)",
    "hundreds of games of each individual, eight runs of MuJoCo": r"ec.lifetime=balance|seed=range\(100",
    "a cluster of Ray": r"=ray\b|address=auto",
    "a server of W&B": r"wandb=",
    "a GPU": r"device=cuda",
    "a person at the keyboard": r"^evorl play",
    "engines that are built by hand": r"mdp=football|envpool|godot_rl",
    "runs and policies of the reader": r"^evorl report latest|runs/mine|runs/a,|runs/\*|multirun/",
}
"""Which commands are not run, by the reason."""
UNREAD = r"^python |^evorl (zoo|--version)|trust="
"""Commands whose words nobody can read without their work, or without code of the page."""
READERS = {
    "my_wrappers.py": """\
from gymnasium import ActionWrapper


class Slippery(ActionWrapper):
    def action(self, action):
        return action
""",
    "my_games/tag.py": """\
from mpe2 import simple_tag_v3
from pettingzoo.utils.wrappers import BaseParallelWrapper


class Tag(BaseParallelWrapper):
    def step(self, actions):
        *told, infos = super().step(actions)
        return *told, {name: {"caught": 0} for name in infos}


def make():
    return Tag(simple_tag_v3.parallel_env())
""",
}
"""Files that the commands of docs/worlds.md and docs/write_a_world.md name and that the page leaves to its reader."""
RUN = (
    *("a3c", "ddpg", "impact", "off_policy", "ppo", "reinforce", "sac", "td3", "vtrace"),
    *("populations", "samplers", "searches"),
)
"""Other pages whose commands are all run."""
COMMANDS = [line for page in PAGES for line in lines(page)]
MAKE = sorted({line for line in COMMANDS if line.startswith("make ")})
EXTRAS = sorted({names for page in PAGES for names in re.findall(r"evorl-suite\[([\w,-]+)\]", page.read_text())})


def is_run(line: str) -> bool:
    return not any(re.search(pattern, line) for pattern in ONLY_READ.values())


def prepare(page: Path, place: Path) -> None:
    """What a reader has by then: the files that the page's blocks name in their first line, `READERS`, and a run."""
    first = {block: re.match(r"# ([\w/]+\.\w+)\n", block) for _, block in blocks(page)}
    for name, text in {**READERS, **{named[1]: block for block, named in first.items() if named}}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    if any("RUN_DIR" in line for line in ours(page)):
        done = evorl("run", *SMALL, "mdp.rounds=1", "hydra.run.dir=RUN_DIR", cwd=place)
        assert done.returncode == 0, done.stderr


def shortened(line: str) -> list[str]:
    """The words of a command that come after ``evorl``, made tiny."""
    words = shlex.split(line.removeprefix("evorl "))
    given = {word.partition("=")[0] for word in words}
    steps = TINY["budget.steps"] * (16 if "resume" in given else 1)  # a first generation may be long
    tiny = {**TINY, "budget.steps": steps}
    words = [f"{key}={tiny[key]}" if (key := word.partition("=")[0]) in tiny else word for word in words]
    if words[0] != "run" or {"resume", "replay", "-h", "--help", "--cfg"} & given:
        return words
    trained = any(word in ("ec=league", "ec=psro") for word in words)  # for a million steps, unless told otherwise
    needed = ("budget.steps", *["ec.train_steps"] * trained)
    of_three = ["rl.slots=12"] * ("mdp.id=mpe2.simple_spread_v3" in words)  # whole games of three sides
    return [*words, *SMALL, *of_three, *(f"{key}={TINY[key]}" for key in needed if key not in given)]


def typed(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Carry out a command in a folder."""
    if line.startswith("evorl "):
        return evorl(*shortened(line), cwd=place, WANDB_MODE="offline")
    words = [sys.executable, *shlex.split(line)[1:]]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=place, env=env, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(map(is_run, ours(page))) and page.name != "plugins.md"],
    ids=lambda page: page.name,
)
def test_the_commands_of_a_page_run_in_their_order(page: Path, tmp_path: Path) -> None:
    prepare(page, tmp_path)
    for line in filter(is_run, dict.fromkeys(ours(page))):
        done = typed(line, tmp_path)
        assert done.returncode == 0, (line, done.stderr)


@pytest.mark.slow_cases(*(page.name for page in EVOLVERS), *(f"{name}.md" for name in RUN))  # all are run, too
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_take_their_words(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a block or a sentence composes and checks its words as ever, and ends where its work would begin.

    Of ``resume=`` and ``replay=`` a run alone shows whether they find what they need.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Football, "ready", lambda world: None)  # its engine may be missing, and no game begins
    (tmp_path / "game.x86_64").touch(0o755)
    read = [line for line in (*ours(page), *within_sentences(page)) if not re.search(UNREAD, line)]
    with only_reading():
        assert [line for line in dict.fromkeys(read) if page.name != "plugins.md" and not is_read(line)] == []


def test_what_is_not_run_stands_in_the_docs() -> None:
    """Every reason has a command. What is not read is run, here or in the test of docs/atari.md."""
    written = [line for page in PAGES for line in ours(page)]
    assert [why for why, pattern in ONLY_READ.items() if not any(re.search(pattern, line) for line in written)] == []
    unread = [line for line in written if not is_run(line) and re.search(rf"{UNREAD}|(resume|replay)=", line)]
    assert unread == ["evorl run resume=runs/breakout budget.steps=20_000_000"]


def test_items_of_a_list_have_lines_of_their_own() -> None:
    """A list whose lines were joined stands on the site as one paragraph."""
    for page in PAGES:
        joined = re.findall(r"^(?! {4}).*[.:;)`] +[*-] +[A-Z`].*$", prose(page), re.MULTILINE)
        assert joined == [], f"{page.name}: {joined[0]}"


def test_blocks_with_commands_have_their_label() -> None:
    """So the tests find them: ``sh`` and ``console`` for a shell, ``python``; each block has a label."""
    command = re.compile(r"^\s*(\w*\$ +)?(python -m |evorl \w|pip install|make \w)|(import|from) evorl", re.MULTILINE)
    for page in PAGES:
        for label, block in blocks(page):
            assert label, f"{page.name}: a block without a label: {block}"
            assert label in ("sh", "console", "python") or not command.search(block), f"{page.name}: {label}: {block}"
        indented = "\n".join(re.findall(r"^    .*", prose(page), re.MULTILINE))
        assert not command.search(indented), f"{page.name}: {indented}"


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
