"""A few hundred misspelt keys and choices and wrong values: exit 2, one line, the right name, nothing written."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl import config, overrides, run
from evorl.record.runs import flatten
from evorl.util.seed import generator

BASES = (["mdp=pong", "rl=ppo"], ["mdp=cartpole", "rl=a2c"], ["mdp=duel", "rl=reinforce"])
FREE = ("trust", "resume", "init", "replay", "ec", "mdp.kwargs")
"""Keys without a type to get wrong here."""


def leaves(words: list[str]) -> dict[str, Any]:
    with config.opened() as hydra:
        found = flatten(config.resolved(config.compose(hydra, words)))
    return {key: value for key, value in found.items() if key not in FREE}


def cases(base: list[str]) -> dict[str, Any]:
    """The leaves of a base, those left out that an earlier one has."""
    earlier = [leaves(one) for one in BASES[: BASES.index(base)]]
    return {key: value for key, value in leaves(base).items() if not any(key in one for one in earlier)}


def choices() -> list[tuple[str, str]]:
    return [(path.parent.name, path.stem) for path in sorted(config.CONF.glob("*/*.yaml"))]


def misspelt(word: str, rng: np.random.Generator) -> str:
    """One letter deleted, swapped with the next, inserted or replaced."""
    at = int(rng.integers(len(word)))
    letter = str(rng.choice([*string.ascii_lowercase]))
    swapped = word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :]
    return str(
        rng.choice(
            [word[:at] + word[at + 1 :], swapped, word[:at] + letter + word[at:], word[:at] + letter + word[at + 1 :]]
        )
    )


def typo(word: str, valid: set[str], rng: np.random.Generator) -> str:
    """A misspelt word that is neither empty nor another valid one."""
    while True:
        found = misspelt(word, rng)
        if found and found not in valid and not found.isdigit():
            return found


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a wrong request was trained")

    monkeypatch.setattr("evorl.session.carried_out", started)
    monkeypatch.chdir(tmp_path)
    yield
    assert [*tmp_path.iterdir()] == []


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run.main(words) == 2, words
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and text.startswith("evorl: "), (words, text)
    return text.strip()


@pytest.mark.parametrize("base", BASES, ids=" ".join)
def test_misspelt_keys(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rng = generator("typos", *base)
    right: list[bool] = []
    known = leaves(base)
    found = [*cases(base).items()]
    for case in rng.permutation(3 * len(found))[:60]:
        key, value = found[case % len(found)]
        parts = key.split(".")
        at = int(rng.integers(len(parts)))
        siblings = {one.split(".")[at] for one in known if one.split(".")[:at] == parts[:at]}
        wrong = ".".join([*parts[:at], typo(parts[at], siblings | {*FREE}, rng), *parts[at + 1 :]])
        text = refusal([*base, f"{wrong}={json.dumps(value)}"], capsys)
        right.append(f"did you mean {'.'.join(parts[: at + 1])}?" in text)
        if not right[-1]:
            print(text)
    assert sum(right) >= 0.95 * len(right), f"{sum(right)} of {len(right)}"


def test_misspelt_choices(capsys: pytest.CaptureFixture[str]) -> None:
    rng = generator("typos", "choices")
    found = choices()
    right = 0
    for group, choice in found:
        plus = "+" if group in overrides.FOLDERS else ""
        wrong = typo(choice, {b for a, b in found if a == group}, rng)
        text = refusal([f"{plus}{group}={wrong}"], capsys)
        assert text.startswith(f"evorl: {group}: "), text
        right += f"did you mean {choice}?" in text
    assert right >= 0.95 * len(found), f"{right} of {len(found)}"


def wrong_value(value: Any) -> str:
    return "7" if isinstance(value, str) else "[[oops]]" if value is None else "oops"


@pytest.mark.parametrize("base", BASES, ids=" ".join)
def test_values_of_a_wrong_type(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for key, value in cases(base).items():
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
