"""What --help shows: every key, its default and its meaning, for every choice that there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import zip_longest
from pathlib import Path

import pytest
from hydra.types import RunMode
from omegaconf import DictConfig

from evorl import evaluate, report
from evorl.analysis.runs import flatten
from evorl.cli import config, groups, help, overrides
from evorl.cli.descriptions import Descriptions, descriptions
from evorl.cli.hydra_internals import Hydra
from evorl.run import main

CHOICES = [f"{path.parent.name}={path.stem}" for path in sorted(config.CONF.glob("*/*.yaml"))]


@pytest.fixture(scope="module")
def hydra() -> Iterator[Hydra]:
    with config.opened() as found:
        yield found


def rows(hydra: Hydra, *words: str) -> dict[str, tuple[str, str]]:
    composed, known = explained(hydra, *words)
    return {key: (value, meaning) for key, value, meaning in help.rows(composed, known)}


def explained(hydra: Hydra, *words: str) -> tuple[DictConfig, Descriptions]:
    composed = config.compose(hydra, words, mode=RunMode.MULTIRUN)
    return composed, descriptions(hydra, composed, words, "config")


def together() -> list[list[str]]:
    """Every choice at least once: one of each group at a time, since a composition takes as long with many."""
    groups = {word.partition("=")[0] for word in CHOICES} - {overrides.TUNED, *overrides.FOLDERS}
    of_each = [[word for word in CHOICES if word.startswith(f"{group}=")] for group in sorted(groups)]
    alone = [[f"+{word}"] for word in CHOICES if word.partition("=")[0] in overrides.FOLDERS]
    return [*alone, *([word for word in words if word] for words in zip_longest(*of_each))]


TUNED_PAIRS = [word.partition("=")[2].rpartition("_") for word in CHOICES if word.startswith(f"{overrides.TUNED}=")]


@pytest.mark.parametrize(
    "words",
    [
        *together(),
        *(pytest.param([f"mdp={world}", f"rl={rl}"], marks=pytest.mark.slow) for world, _, rl in TUNED_PAIRS),
    ],
    ids=" ".join,
)
def test_every_key_has_a_meaning(hydra: Hydra, words: list[str]) -> None:
    """A file of ``tuned`` has the keys of its pair."""
    found = rows(hydra, *words)
    assert [key for key, (_, meaning) in found.items() if not meaning] == []
    assert all("\n" not in value + meaning for value, meaning in found.values())


@pytest.mark.parametrize(
    "words", [[], ["mdp=duel", "rl=a2c"], ["mdp=gymnasium", "mdp.id=CartPole-v1", "+debug=tiny"]], ids=" ".join
)
def test_every_key_is_shown_as_it_can_be_written_again(hydra: Hydra, words: list[str]) -> None:
    composed, known = explained(hydra, *words)
    again = [f"{key}={value}" for key, value, _ in help.rows(composed, known) if value]
    data = config.resolved(composed)
    assert config.resolved(config.compose(hydra, [*words, *again])) == data
    shown = {word.partition("=")[0] for word in again}
    hidden = ("ec", "opponents")  # their files none have no keys
    leaves = [key for key in flatten(data) if not key.endswith("_target_") and key not in hidden]
    assert [key for key in leaves if not any(key == one or key.startswith(f"{one}.") for one in shown)] == []


def test_the_first_file_that_knows_a_key_says_what_it_means(hydra: Hydra) -> None:
    found = rows(hydra, "mdp=cartpole", "+debug=tiny")
    assert found["mdp.budget"] == ("100000", "environment steps of a run")
    assert found["budget.steps"] == ("4096", "environment steps; null takes the world's own budget")
    assert found["budget"] == ("", "a run ends at whichever limit it meets first")
    assert found["mdp.kwargs"][0] == "{}" and found["resume"][0] == "null"


def test_a_world_of_ones_own(tmp_path: Path) -> None:
    text = """\
defaults: [pong, _self_]
spin: 0.1 # of ours
mine: {a: "x # y"} # a mapping as one value
deep:
  list: # above it
    - 1
  text: | # beside
    # no comment
  nothing: # at all
"""
    (tmp_path / "mdp").mkdir()
    (tmp_path / "mdp" / "mine.yaml").write_text(text)
    with config.opened(extra=str(tmp_path)) as hydra:
        found = rows(hydra, "mdp=mine")
    assert found["mdp.spin"] == ("0.1", "share of the bat's vertical speed that the ball takes on at a bounce")
    assert found["mdp.mine"] == ("{a: 'x # y'}", "a mapping as one value")
    assert [found[f"mdp.deep.{name}"][1] for name in ("list", "text", "nothing")] == ["above it", "beside", "at all"]


def test_the_list_has_every_choice_once_and_says_what_it_is(hydra: Hydra, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = [line.split()[0] for line in lines]
    files = {path.relative_to(config.CONF).with_suffix("") for path in config.CONF.rglob("*.yaml")}
    files = {path for path in files if path.parts[0] not in ("hydra", "config")}
    assert sorted(word.lstrip("+").replace("=", "/", 1) for word in words) == sorted(map(str, files))
    assert {"mdp=pong", "ec=asha", "+experiment=aes_rl/hopper", "cluster=ray"} <= {*words}
    assert all(line.split(maxsplit=1)[1:] for line in lines), "a choice without a word on it"


def test_the_page_is_aligned(hydra: Hydra) -> None:
    composed = config.compose(hydra, [], mode=RunMode.MULTIRUN)
    lines = help.help_page(hydra, composed, [], "config").splitlines()
    found = rows(hydra)
    columns = {
        (line.index(f" {value} "), line.index(meaning))
        for key, (value, meaning) in found.items()
        if 0 < len(value) <= 16
        for line in lines
        if line.startswith(f"{key} ")
    }
    assert len(columns) == 1


def test_the_other_doors_list_their_keys_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        evaluate.main(["--help"])
    lines = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    for line, key in zip(lines, fields(evaluate.Request), strict=True):
        name, default, meaning = (line if key.default is not MISSING else line.replace(" ", " - ", 1)).split(None, 2)
        assert name == key.name and meaning
        assert key.default is MISSING or default == overrides.format_value(key.default)
    with pytest.raises(SystemExit, match="0"):
        report.main(["--help"])
    assert re.search(r"^out +report +\w+", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("group", help.TOLD)
def test_every_choice_is_told_in_a_few_words_of_its_file(hydra: Hydra, group: str) -> None:
    lines = help.help_page(hydra, config.compose(hydra, [], mode=RunMode.MULTIRUN), [], "config").splitlines()
    first = lines.index(f"{group}: {', '.join(groups.options(hydra, group))}") + 1
    told = dict(line.split(None, 1) for line in lines[first : lines.index("", first)])
    assert [*told] == groups.options(hydra, group)
    for choice, words in told.items():
        assert 1 <= len(words.split()) <= 12 and words.lower() in groups.comment(hydra, group, choice).lower()


def test_long_lists_are_folded(hydra: Hydra) -> None:
    page = help.help_page(hydra, config.compose(hydra, [], mode=RunMode.MULTIRUN), [], "config")
    count = len([*(config.CONF / "experiment" / "marvin").rglob("*.yaml")])
    assert f"marvin/... ({count}: +experiment=marvin lists them)" in page and "marvin/ours" not in page
    pairs = len([*(config.CONF / "tuned").glob("*.yaml")])
    assert f"tuned: {pairs} pairs" in page and "cartpole_ppo" not in page
