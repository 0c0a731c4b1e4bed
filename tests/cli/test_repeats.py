"""Choices that are given twice: refused on a person's command line, the last one counts where programs add words."""

from __future__ import annotations

from pathlib import Path

import pytest

from evorl.cli.repeats import check_chosen_once, last_choices
from evorl.reproduction.parts import Sweep
from evorl.util.errors import BadRequest


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["mdp=cartpole", "seed=1", "mdp=pong"], "mdp"),
        (["tuned=pong_ppo", "tuned=other"], "tuned"),
        (["hydra/launcher=ray", "hydra/launcher=basic"], "hydra/launcher"),
        (["resume=a", "resume=b"], "resume"),
    ],
)
def test_a_choice_given_twice_is_refused_with_both(words: list[str], key: str) -> None:
    first, last = (word.partition("=")[2] for word in words if word.startswith(f"{key}="))
    with pytest.raises(BadRequest, match=f"^{key}: is given twice, as {first} and as {last}; leave one out$"):
        check_chosen_once(words)


def test_the_same_choice_twice_and_the_last_value_of_another_key_are_taken() -> None:
    check_chosen_once(["mdp=pong", "mdp=pong", "seed=1", "seed=2", "rl.lr=1", "rl.lr=2", "~tuned", "tuned=x"])


def test_the_last_choice_stands_in_the_place_of_the_first() -> None:
    """So the jobs of a sweep keep their order."""
    words = ["mdp=a,b", "rl.lr=1", "rl=ppo", "rl.lr=2", "mdp=c", "seed=1"]
    assert last_choices(words) == ["mdp=c", "rl.lr=1", "rl=ppo", "rl.lr=2", "seed=1"]


def test_a_word_for_every_job_of_a_table_replaces_its_choice() -> None:
    command = Sweep("s", ("mdp=pong", "rl=ppo", "seed=1,2"), ("hydra/launcher=ray",)).command(
        Path("runs"), ("rl=a2c", "hydra/launcher=basic")
    )
    check_chosen_once(command)
    assert command[4:] == ["hydra/launcher=basic", "hydra.sweep.dir=runs/s", "mdp=pong", "rl=a2c", "seed=1,2"]
