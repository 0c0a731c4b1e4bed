"""Runs in which each side of a game, or each group of sides, has a network of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from harness import QUICK, fingerprint, go

from evorl.evaluate import main as evaluate
from evorl.record import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "mdp"))  # for zoo

pytest.importorskip("pettingzoo")

UNLIKE = ("mdp=pettingzoo", "mdp.id=zoo:Unlike", "trust=[zoo]", "rl.policies=each")
TINY = (*QUICK, *UNLIKE, "rl.slots=4", "rl.minibatch=32")
CASES = {
    "choices": ("opponents=none",),
    "numbers": ("opponents=none", "+mdp.kwargs.numbers=true", "rl.normalize_inputs=true", "rl.members=2"),
    "opponents": ("opponents=past", "opponents.snapshot=128", "rl.policies=[[1],[0]]", "rl.net.lstm=4"),
    "duel": ("mdp=duel", "mdp.id=null", "mdp.ground.limit=10", "opponents=self"),
}


def run(place: Path, case: str, steps: int, *words: str) -> Path:
    own = [word for word in (*TINY, *CASES[case]) if case != "duel" or not word.startswith(("mdp.id", "mdp=petting"))]
    last = list({word.partition("=")[0]: word for word in own}.values())
    assert go(*last, *words, f"budget.steps={steps}", f"hydra.run.dir={place}") == 0
    return place


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(case: str, tmp_path: Path) -> None:
    whole, part = run(tmp_path / "whole", case, 600), run(tmp_path / "part", case, 300)
    stop = checkpoint.steps(part)[-1]  # where it was evaluated, as the other was not
    assert go(f"resume={part}", "budget.steps=600", *(("trust=[zoo]",) if case != "duel" else ())) == 0
    assert fingerprint(whole, aside=[stop]) == fingerprint(part, aside=[stop])
    names = {name.split(".")[1] for name in checkpoint.run_state(whole)[1]["learner"]["policy"]}
    assert names == {"0", "1"}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["numbers", "opponents"])
def test_workers_change_no_bit(case: str, tmp_path: Path) -> None:
    here = run(tmp_path / "here", case, 400)
    there = run(tmp_path / "there", case, 400, "cluster=processes", "cluster.workers=2")
    assert fingerprint(here) == fingerprint(there)


def test_sides_with_other_observations_and_actions_learn_in_one_run(tmp_path: Path) -> None:
    """At random they get 3 of 8 points; each can have all by what it alone sees."""
    place = tmp_path / "run"
    words = ("rl.slots=16", "rl.horizon=32", "rl.minibatch=128", "rl.passes=4", "rl.lr=0.01", "rl.gamma=0.1")
    last = list({word.partition("=")[0]: word for word in (*QUICK, *UNLIKE, *words)}.values())
    assert go(*last, "eval.episodes=8", "budget.steps=4000", f"hydra.run.dir={place}") == 0
    result = json.loads((place / "result.json").read_bytes())
    assert result["eval"]["return_mean"] > 7
    assert evaluate([f"run={place}", "episodes=4", "trust=[zoo]"]) == 0
    matrix = ("matrix=true", f"players=[{place},{place}@all]", "games=4", "trust=[zoo]", f"out={tmp_path / 'out'}")
    steps = checkpoint.steps(place)
    assert evaluate([*matrix]) == 0 or len(steps) == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["mdp=pong"],
            "rl.policies: observations do not tell which side it is (Spec.who), so one policy plays all sides",
        ),
        (["mdp=cartpole"], "rl.policies: the games of this world have one side"),
        (
            ["mdp=duel", "rl=dqn"],
            "rl.policies: this learner has one network for all sides; rl=ppo, a2c, a3c, reinforce can",
        ),
        (["mdp=duel", "rl=vtrace"], "rl.policies: this learner has one network for all sides; rl=ppo, a2c"),
        (["mdp=duel", "ec=sga", "ec.lifetime=play"], "rl.policies: weights that are evolved are those of one network"),
        (["mdp=duel", "rl.policies=[[0],[2]]"], "rl.policies: expected groups of the sides 0 to 1, each once"),
        (["mdp=duel", "rl.policies=all"], "rl.policies: "),
    ],
)
def test_what_is_refused(words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = list({word.partition("=")[0]: word for word in ("rl.policies=each", *words)}.values())
    assert go(*last, f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert text in said and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()
