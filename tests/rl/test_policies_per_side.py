"""Runs in which each side of a game, or each group of sides, has a network of its own."""

from __future__ import annotations

import copy
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import QUICK, experiment_of, fingerprint, go

from evorl.evaluate import main as evaluate
from evorl.record import checkpoint
from evorl.rl.sampler import Sampler

sys.path.insert(0, str(Path(__file__).parents[1] / "mdp"))  # for zoo

pytest.importorskip("pettingzoo")

UNLIKE = ("mdp=pettingzoo", "mdp.id=zoo:Unlike", "trust=[zoo]", "rl.policies=each")
TINY = (*QUICK, *UNLIKE, "rl.slots=4", "rl.minibatch=32")
CASES = {
    "choices": ("opponents=none",),
    "numbers": ("opponents=none", "+mdp.kwargs.numbers=true", "rl.normalize_inputs=true", "rl.members=2"),
    "opponents": ("opponents=past", "opponents.snapshot=128", "rl.policies=[[1],[0]]", "rl.net.lstm=4"),
    "duel": ("mdp=duel", "mdp.ground.limit=10", "opponents=self"),
    "pong": ("mdp=pong", "mdp.rounds=2", "mdp.round_steps=30", "opponents=past", "opponents.snapshot=128"),
    "volley": ("mdp=volley", "mdp.lives=1", "rl.net.lstm=4", "rl.normalize_inputs=true"),
}
FOREIGN = ("mdp.id", "mdp=petting", "trust")


def run(place: Path, case: str, steps: int, *words: str) -> Path:
    ours = CASES[case][0].startswith("mdp=")
    own = [word for word in (*TINY, *CASES[case]) if not (ours and word.startswith(FOREIGN))]
    last = list({word.partition("=")[0]: word for word in own}.values())
    assert go(*last, *words, f"budget.steps={steps}", f"hydra.run.dir={place}") == 0
    return place


@pytest.mark.slow_cases(but=("pong",))
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(case: str, tmp_path: Path) -> None:
    whole, part = run(tmp_path / "whole", case, 600), run(tmp_path / "part", case, 300)
    stop = checkpoint.steps(part)[-1]  # where it was evaluated, as the other was not
    assert (
        go(f"resume={part}", "budget.steps=600", *(() if CASES[case][0].startswith("mdp=") else ("trust=[zoo]",))) == 0
    )
    assert fingerprint(whole, aside=[stop]) == fingerprint(part, aside=[stop])
    names = {name.split(".")[1] for name in checkpoint.run_state(whole)[1]["learner"]["policy"]}
    assert names == {"0", "1"}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["numbers", "opponents"])
def test_workers_change_no_bit(case: str, tmp_path: Path) -> None:
    here = run(tmp_path / "here", case, 400)
    there = run(tmp_path / "there", case, 400, "cluster=processes", "cluster.workers=2")
    assert fingerprint(here) == fingerprint(there)


def test_who_is_told_its_side_is_judged_as_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = run(tmp_path / "run", "pong", 128)
    assert evaluate([f"run={place}", "episodes=2"]) == 0
    assert evaluate(["matrix=true", f"players=[{place},rule]", "games=4", f"out={tmp_path / 'out'}"]) == 0
    assert "rule" in capsys.readouterr().out


@pytest.mark.slow  # a network learns from its side below, and a run resumes above
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
        (["mdp=cartpole"], "rl.policies: the games of this world have one side"),
        (
            ["mdp=duel", "rl=dqn"],
            "rl.policies: this learner has one network for all sides; rl=ppo, a2c, a3c, reinforce can",
        ),
        (["mdp=duel", "rl=vtrace"], "rl.policies: this learner has one network for all sides; rl=ppo, a2c"),
        (["mdp=duel", "ec=sga", "ec.lifetime=play"], "rl.policies: ec.lifetime=play evolves the weights of one"),
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


@pytest.mark.parametrize(
    "words",
    [
        ("mdp=pong", "opponents=self", "mdp.rounds=1", "mdp.round_steps=12"),
        ("mdp=pong", "opponents=self", "mdp.rounds=1", "mdp.round_steps=12", "mdp.delay_ms=[0,0.01]"),
    ],
    ids=["vector", "coroutines"],
)
def test_a_network_learns_from_the_decisions_of_its_side_alone(words: tuple[str, ...]) -> None:
    """What the other side did and got may be anything: not a bit of this side's network depends on it."""
    experiment = experiment_of(
        *QUICK[:4], *words, "rl.policies=each", "rl.slots=8", "rl.horizon=16", "rl.minibatch=64", "rl.passes=2",
        "rl.net.hidden=[8]", "rl.max_grad_norm=null", "rl.normalize_inputs=true",
    )  # fmt: skip
    hyper, cpu = experiment.rl, torch.device("cpu")
    with closing(Sampler(experiment.training_world, hyper, 0, cpu, 0)) as sampler:
        learner = hyper.learner(sampler.arena.spec, 0, cpu)
        sampler.collect(learner.weights(), 0)
        batch: Any = sampler.actor.batch
    assert (batch.inputs[-1].argmax(-1) == torch.arange(8) % 2).all()

    def learned(side: int | None) -> dict[str, torch.Tensor]:
        """The weights after an update, in which this side's decisions were others."""
        other, new = copy.deepcopy(batch), hyper.learner(sampler.arena.spec, 0, cpu)
        if side is not None:
            rows = slice(side, None, 2)
            other.reward[:, rows] -= torch.arange(16.0)[:, None, None]
            other.action[:, rows] = 2 - other.action[:, rows]
            other.inputs[0][:, rows] += 1
        new.update(other, 0, 0)
        return {name: x.clone() for name, x in new.layout.unflatten(new.theta).items()}

    plain, changed = learned(None), [learned(side) for side in (0, 1)]
    for name, x in plain.items():
        own = int(name.split(".")[1])
        assert torch.equal(x, changed[1 - own][name]), name
    assert all(
        any(not torch.equal(x, changed[k][name]) for name, x in plain.items() if f"policies.{k}." in name)
        for k in (0, 1)
    )
