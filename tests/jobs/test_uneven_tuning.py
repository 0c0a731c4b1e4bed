"""A comparison of algorithms of which only some have tuned settings says so, with the word that makes it fair."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import go
from hydra.types import RunMode

from evorl.analysis.groups import group_runs
from evorl.analysis.notes import uneven_tuning, warnings
from evorl.analysis.runs import read_run
from evorl.cli import config
from evorl.jobs.job import choices
from evorl.jobs.planning import _choices, combinations

LINE = (
    "Of cartpole, ppo (tuned=cartpole_ppo) has tuned settings and reinforce only defaults, which may make the "
    "difference: with ~tuned all have their defaults."
)
DQN = LINE.replace("(tuned=cartpole_ppo) has", "(tuned=cartpole_ppo), dqn (tuned=cartpole_dqn) have")


@pytest.mark.slow_cases("words2-lines2", "words3-lines3", "words6-lines6")
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["mdp=cartpole", "rl=ppo,reinforce"], [LINE]),
        (["mdp=cartpole", "rl=ppo,reinforce", "~tuned"], []),
        (["mdp=cartpole", "rl=ppo,a2c"], []),
        (["mdp=acrobot", "rl=ppo,reinforce"], []),
        (["mdp=cartpole", "rl=reinforce", "seed=1,2"], []),
        (["mdp=cartpole,acrobot", "rl=ppo,reinforce,dqn"], [DQN]),
        (["mdp=cartpole", "rl=reinforce,ppo", "tuned=cartpole_ppo"], []),
    ],
)
def test_a_sweep_says_of_which_algorithms_there_is_a_tuned_file(words: list[str], lines: list[str]) -> None:
    with config.opened() as hydra:
        base = config.compose(hydra, words, mode=RunMode.MULTIRUN)
        jobs = [config.compose(hydra, one) for one in combinations(hydra, base)]
        assert uneven_tuning(map(_choices, jobs)) == lines


def test_the_same_algorithm_with_and_without_its_file_is_compared_on_purpose() -> None:
    tuned = {"mdp": "cartpole", "rl": "ppo", "tuned": "cartpole_ppo"}
    assert uneven_tuning([tuned, {"mdp": "cartpole", "rl": "ppo"}]) == []
    others = [{"mdp": "cartpole", "rl": name} for name in ("ppo", "a2c", "ppo")]
    assert uneven_tuning([tuned, *others]) == uneven_tuning([*others, tuned]) == []
    assert uneven_tuning([tuned, {"mdp": "pong", "rl": "reinforce"}, {}]) == []


@pytest.mark.slow
def test_sweep_and_report_tell_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("mdp=cartpole", "rl=ppo,reinforce", "budget.steps=64", "eval.episodes=1", "record.tensorboard=false")
    assert go("--multirun", *words, f"hydra.sweep.dir={tmp_path / 'sweep'}") == 0
    assert capsys.readouterr().out.count(LINE) == 1
    places = [tmp_path / "sweep" / name for name in "01"]
    assert [choices(place)["tuned"] for place in places] == ["cartpole_ppo", None]
    assert LINE in warnings(group_runs([read_run(place) for place in places]))
    assert go(f"resume={places[1]}", "budget.steps=9000") == 0
    assert "tuned" not in read_run(places[1]).choices
