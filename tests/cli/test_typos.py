"""Every key of every file of conf/ misspelt and given a wrong type, every choice misspelt, and impossible values.

`make faults` takes all keys, `make test-all` a quarter of them, and `make test` leaves out those of mdp, rl and ec.

Each is refused with exit code 2 and one line that says the right name, and nothing is written.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conf_files import FILES, name, split, words_of
from omegaconf import OmegaConf

from evorl import run
from evorl.analysis.runs import flatten
from evorl.cli import config, overrides
from evorl.cli.refusals import check_hydra
from evorl.util.errors import one_edit
from evorl.util.seed import generator

NEEDED = {
    "hydra/launcher/ray": ["--multirun", "seed=1,2"],
    "hydra/sweeper/evorl": ["--multirun", "rl.lr=interval(1e-4,1e-2)"],
    "mdp/problem": ["ec=cma_es"],
    "ec/map_elites": ["+ec.descriptors.lazy=[0,1,20]"],
    "ec/pbt": ["+ec.genes.rl.lr=[1e-4,1e-2]"],
}
"""Words without which a file means nothing."""
UNTYPED = ("resume", "init", "replay", "trust")
"""Keys whose values are names of any kind."""
FREE = ("hydra.run", "hydra.sweep.", "hydra.output_subdir", "hydra.job", "hydra.help")
"""What our main file sets of Hydra's own, which any word is."""


pytestmark = pytest.mark.filterwarnings(  # as config.opened() says
    r"ignore:\s*'hydra/launcher/ray' is validated against ConfigStore schema"
)


class Leaf(NamedTuple):
    key: str
    value: Any
    base: list[str]
    """Words of a run that has the key."""


def leaves() -> list[Leaf]:
    """Every key that a file writes, once, with the first file that writes it."""
    found: dict[str, Leaf] = {}
    for path in FILES:
        base = [*words_of(path), *NEEDED.get(name(path), [])]
        for key, value in flatten(said(path)).items():
            found.setdefault(key, Leaf(key, value, base))
    return [*found.values()]


def said(path: Path) -> Mapping[str, Any]:
    """A file's keys, where they stand in the whole."""
    data: Any = OmegaConf.to_container(OmegaConf.load(path))
    data.pop("defaults", None)
    group = "" if "@package _global_" in path.read_text() else split(path)[0]
    for one in reversed(group.split("/") if group else []):
        data = {one: data}
    return data


LEAVES = leaves()
CHOICES = [split(path) for path in FILES if split(path)[0]]


def edits(word: str) -> set[str]:
    """All words with one letter deleted, swapped with the next, replaced or inserted."""
    halves = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    letters = [*string.ascii_lowercase, "_"]
    found = {a + b[1:] for a, b in halves if b} | {a + b[1] + b[0] + b[2:] for a, b in halves if len(b) > 1}
    found |= {a + x + b[1:] for a, b in halves if b for x in letters}
    return found | {a + x + b for a, b in halves for x in letters}


def typo(word: str, valid: set[str], rng: np.random.Generator) -> str:
    """A misspelt word that is no valid one and still a word."""
    return str(rng.choice(sorted(one for one in edits(word) - valid if one and not one.isdigit())))


def siblings(parts: list[str], at: int) -> set[str]:
    """The names that any file has in a place of a key; in the first one folders may be chosen of as well."""
    names = [one.key.split(".") for one in LEAVES]
    folders = {*overrides.FOLDERS, overrides.TUNED} if at == 0 else set()
    return {name[at] for name in names if name[:at] == parts[:at] and len(name) > at} | folders


@pytest.fixture(scope="module", autouse=True)
def files_are_read_once() -> Iterator[None]:
    with config.opened() as hydra, pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "opened", lambda *_: nullcontext(hydra))
        yield


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a wrong request was trained")

    monkeypatch.setattr("evorl.training.session.run_to_end", started)
    monkeypatch.setattr("hydra._internal.hydra.Hydra.multirun", started)
    monkeypatch.chdir(tmp_path)
    yield
    assert [*tmp_path.iterdir()] == []


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run.main(words) == 2, (words, capsys.readouterr().err)
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and text.startswith("evorl: "), (words, text)
    return text.strip()


LAST = {one.key.rpartition(".")[2] for one in LEAVES}
"""Names that a user may type without their group: ``lr`` is told that it is ``rl.lr``."""
GROUPS = sorted({one.key.partition(".")[0] for one in LEAVES})


STEP = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.fault)], ids=["a quarter", "all"])
"""Of the keys in their order every so many."""


@pytest.mark.slow_cases("mdp-a quarter", "rl-a quarter", "ec-a quarter")
@STEP
@pytest.mark.parametrize("group", GROUPS)
def test_misspelt_keys(group: str, step: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The name that is meant is one letter away, and nearly always the one that was misspelt."""
    rng = generator("typos", group)
    found = [one for one in LEAVES if one.key.partition(".")[0] == group][::step]
    right = 0
    for key, value, base in found:
        parts = key.split(".")
        at = int(rng.integers(len(parts)))
        valid = siblings(parts, at)
        wrong = typo(parts[at], valid | (LAST if at == 0 else set()), rng)
        misspelt = ".".join([*parts[:at], wrong, *parts[at + 1 :]])
        text = refusal([*base, f"{misspelt}={'x' if '$' in str(value) else json.dumps(value)}"], capsys)
        assert text.startswith(f"evorl: {'.'.join([*parts[:at], wrong])}"), text
        _, said, meant = text.removesuffix("?").rpartition("did you mean ")
        prefix = "".join(f"{part}." for part in parts[:at])
        assert said and meant.startswith(prefix), text
        nearest = meant.removeprefix(prefix).removeprefix("+")
        assert nearest in valid and wrong in edits(nearest), text
        right += nearest == parts[at]
    assert right >= 0.9 * len(found) or step > 1, f"{right} of {len(found)}"


@pytest.mark.slow
def test_misspelt_choices(capsys: pytest.CaptureFixture[str]) -> None:
    rng = generator("typos", "choices")
    for group, choice in CHOICES:
        plus = "+" if group in overrides.FOLDERS else ""
        folder, _, last = choice.rpartition("/")
        there = {other for one, other in CHOICES if one == group}
        wrong = "/".join([*([folder] if folder else []), typo(last, there, rng)])
        text = refusal([f"{plus}{group}={wrong}"], capsys)
        assert text.startswith(f"evorl: {group}: no choice '{wrong}'; did you mean "), text
        meant = text.removesuffix("?").rpartition("did you mean ")[2]
        assert meant in there and one_edit(wrong, meant), text


def wrong_value(value: Any) -> str:
    return "7" if isinstance(value, str) else "[[oops]]" if value is None else "oops"


@pytest.mark.slow_cases("mdp-a quarter", "rl-a quarter", "ec-a quarter")
@STEP
@pytest.mark.parametrize("group", GROUPS)
def test_values_of_a_wrong_type(group: str, step: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = [one for one in LEAVES if one.key.partition(".")[0] == group]
    typed = [one for one in found if one.key not in UNTYPED and not one.key.startswith(FREE)]
    for key, value, base in typed[::step]:
        text = refusal([*base, f"{key}={wrong_value(value)}"], capsys)
        assert text.startswith(f"evorl: {key.removesuffix('._target_')}: "), (key, text)


@pytest.mark.parametrize(
    "word",
    [
        *(
            "rl.lr=-1",
            "rl.gamma=2",
            "rl.slots=0",
            "rl.clip=nan",
            "rl.lr=inf",
            "budget.steps=0",
            "budget.seconds=-1",
        ),
        *("budget.steps=1.5", "seed=-1", "device=gpu", "checkpoint.keep=0", "eval.episodes=0", "record.wandb=on"),
        *("mdp.rounds=0", "mdp.serve=[1]", "mdp.opponent=nobody", "rl.net.activation=tan", "rl.net.hidden=[0]"),
        *("mdp.serve=[1,0]", "mdp.delay_ms=[2,1]", "mdp.budget=0", "mdp.budget=-3", "rl.threads=20000"),
    ],
)
def test_impossible_values(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal([word], capsys).startswith(f"evorl: {word.partition('=')[0]}: ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        *(
            (
                words,
                f"{words[-1].partition('=')[0]}: shuffle gives another order each time; write the values in an order",
            )
            for words in (
                ["--multirun", "seed=shuffle(1,2,3)"],
                ["--multirun", "mdp=cartpole", "seed=sort(shuffle(range(3)))"],
                ["--multirun", "hydra/sweeper=evorl", "rl.lr=interval(1e-4,1e-2)", "seed=shuffle(1,2)"],
                ["rl.net.hidden=shuffle([64,32])"],
            )
        ),
        *(
            ([*mode, word], f"{word.partition('=')[0]}: {why}; leave it out")
            for mode in ([], ["--multirun", "mdp=cartpole", "seed=1,2"])
            for word, why in (
                ("hydra.job.chdir=true", "runs stay in the working directory"),
                ("hydra.output_subdir=.hydra", "evorl writes .hydra/ itself"),
                ("hydra.verbose=true", "evorl keeps no log of Hydra's"),
                ("hydra.verbose=[evorl]", "evorl keeps no log of Hydra's"),
            )
        ),
        (
            ["hydra.sweep.dir=my/runs"],
            "hydra.sweep.dir: is for --multirun; hydra.run.dir=my/runs names the directory of one run",
        ),
        *((["mdp=cartpole", option, "budget"], "--package: goes with --cfg") for option in ("-p", "--package")),
        (["--multirun", "seed=1,2", "--cfg", "job"], "seed: several values; --cfg shows one job"),
        (["seed=1,2", "--cfg", "job"], "seed: several values; --cfg shows one job"),
        (
            ["run=a"],
            "run: unknown key; in evorl this is resume=a to go on, or init=a for a new run from its policy",
        ),
        *(
            ([f"record.wandb={value}"], f"record.wandb: expected one of disabled, offline, online, got {shown}")
            for value, shown in {"foo": "'foo'", "true": "true", "7": "7", "null": "null"}.items()
        ),
        (["mdp=gymnasium", "mdp.id=Foo-v1"], "mdp.id: Foo-v1 is not registered with gymnasium"),
        (
            ["mdp=gymnasium", "mdp.id=LunarLandr-v2"],
            "mdp.id: LunarLandr-v2 is not registered with gymnasium; did you mean LunarLander-v3?",
        ),
        (["hydra.run.dir=null"], "hydra.run.dir: cannot be null"),
        (["--multirun", "seed=1,2", "hydra.sweep.dir=null"], "hydra.sweep.dir: cannot be null"),
        (
            ["resume=eq=y"],
            "resume: cannot read eq=y; a text with special signs is quoted: \"resume='eq=y'\"",
        ),
        (["resume='eq"], 'cannot read "resume=\'eq"; expected KEY=VALUE, quoted if it has special signs'),
        (["--version", "mdp=catpole"], "--version: takes no words, got 'mdp=catpole'"),
        (["--list", "mdp=carpole"], "--list: takes no words, got 'mdp=carpole'"),
        (["--hydra-help", "mdp=pong"], "--hydra-help: takes no words, got 'mdp=pong'"),
        (["hydra.sweep.subdir=a"], "hydra.sweep.subdir: is for --multirun"),
        (
            ["--multirun", "seed=1,2", "hydra.run.dir=my/runs"],
            "hydra.run.dir: is for one run; hydra.sweep.dir=my/runs names the directory of a sweep",
        ),
    ],
)
def test_words_that_cannot_mean_what_they_say(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(words, capsys) == f"evorl: {line}"


def test_a_text_is_no_function() -> None:
    assert overrides.parse(["record.group='shuffle(1,2)'"])[0].value() == "shuffle(1,2)"


@pytest.mark.parametrize("word", ["hydra.job.chdir=false", "hydra.output_subdir=null", "hydra.verbose=false"])
def test_what_a_key_of_hydra_may_be(word: str) -> None:
    check_hydra(overrides.parse([word]), sweep=True)
