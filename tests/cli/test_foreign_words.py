"""Words of other suites are answered with the words of evorl."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import ROOT

from evorl.cli import config
from evorl.cli.foreign_words import ENVIRONMENT, KEYS, translate
from evorl.run import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a refusal, which writes nothing."""
    assert main(words) == 2
    assert not [*Path().iterdir()]
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and "Traceback" not in out
    return err.strip()


@pytest.mark.parametrize("word", ENVIRONMENT)
def test_an_environment_is_a_gymnasium_id_or_a_world(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = f"evorl: {word}: unknown key; in evorl this is "
    assert answer(capsys, f"{word}=CartPole-v1") == asked + "mdp=gymnasium mdp.id=CartPole-v1"
    assert answer(capsys, f"+{word}=ALE/Pong-v5") == asked + "mdp=gymnasium mdp.id=ALE/Pong-v5"
    assert answer(capsys, f"{word}=pong", "rl=ppo") == asked + "mdp=pong"


@pytest.mark.parametrize("word", KEYS)
def test_every_word_is_answered_with_the_key_and_the_value(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    value = "PPO" if KEYS[word] == "rl" else "7"
    assert answer(capsys, f"{word}={value}").endswith(f"in evorl this is {KEYS[word]}={value.lower()}")


@pytest.mark.parametrize("key", sorted({*KEYS.values()}))
def test_the_keys_named_exist(key: str) -> None:
    with config.opened() as hydra:
        composed = config.resolved(config.compose(hydra, ["mdp=cartpole", "rl=ppo"]))
    for name in key.split("."):
        assert name in composed
        composed = composed[name]


@pytest.mark.parametrize("word", [*KEYS, *ENVIRONMENT])
def test_none_of_the_words_is_a_key_of_evorl(word: str) -> None:
    with config.opened() as hydra:
        assert word not in config.resolved(config.compose(hydra, []))
    assert not (ROOT / "conf" / word).exists()


@pytest.mark.parametrize(
    "words", [("--env", "CartPole-v1"), ("--env-id=CartPole-v1",), ("--env_id", "CartPole-v1", "rl=ppo")]
)
def test_dashed_options_too(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *words).endswith("in evorl this is mdp=gymnasium mdp.id=CartPole-v1")


def test_dashed_keys_take_the_next_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--total-timesteps", "5000").endswith("in evorl this is budget.steps=5000")


def test_values_of_a_sweep_stay_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--multirun", "lr=1e-3,1e-4").endswith("in evorl this is rl.lr=1e-3,1e-4")


def test_other_words_are_not_translated() -> None:
    assert translate("rl.lr", "1", []) is None
    assert translate("seed", "1", []) is None
