"""Whole runs against opponents: the same bits anywhere, exact when resumed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import QUICK, WORLDS, fingerprint, go

from evorl.record import checkpoint

POOL = ("opponents=pfsp", "opponents.snapshot=512", "opponents.capacity=2", "opponents.explore=0.2")
PONG, DUEL = WORLDS["pong"], ("mdp=duel", "mdp.ground.limit=5")
CASES = {
    "pong": (*PONG, *POOL),
    "promoted": (*PONG, *POOL, "opponents.promote=0.3"),
    "duel": (*DUEL, *POOL),
    "recurrent": (*DUEL, *POOL, "rl.net.lstm=8"),
    "dqn": (*PONG, *POOL, "rl=dqn", "~rl.minibatch", "~rl.passes"),
    "deterministic": (*PONG, *POOL, "opponents.deterministic=true", "rl.normalize_inputs=true"),
    "several members": (*PONG, *POOL, "rl.members=2"),
}
QUICK_DQN = tuple(word for word in QUICK if not word.startswith(("rl.minibatch", "rl.passes", "rl.horizon")))


def run(directory: Path, case: str, steps: int, *words: str) -> Path:
    quick = (*QUICK_DQN, "rl.warm_up=64") if case == "dqn" else QUICK
    own = [word for word in CASES[case] if not word.startswith("~")]
    assert go(*quick, *own, f"budget.steps={steps}", f"hydra.run.dir={directory}", *words) == 0
    return directory


@pytest.mark.slow_cases(but=("pong", "duel"))
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(case: str, tmp_path: Path) -> None:
    steps = 4000 if case == "dqn" else 2000
    whole = run(tmp_path / "whole", case, 2 * steps)
    part = run(tmp_path / "part", case, steps)
    stop = checkpoint.steps(part)[-1]  # where it was evaluated, as the other was not
    assert go(f"resume={part}", f"budget.steps={2 * steps}") == 0
    assert fingerprint(whole, aside=[stop]) == fingerprint(part, aside=[stop])
    pool = checkpoint.run_state(whole)[1]["source"]["pool"]
    assert len(pool["snapshots"]) == 2 or case == "promoted"
    assert pool["next"] > 2 or case == "promoted"


@pytest.mark.slow_cases("recurrent", "several members")
@pytest.mark.parametrize("case", ["pong", "recurrent", "several members"])
def test_workers_change_no_bit(case: str, tmp_path: Path) -> None:
    here = run(tmp_path / "here", case, 3000)
    there = run(tmp_path / "there", case, 3000, "cluster=processes", "cluster.workers=2")
    assert fingerprint(here) == fingerprint(there)


def test_the_numbers_of_opponents_are_in_the_metrics(tmp_path: Path) -> None:
    place = run(tmp_path / "run", "pong", 4000)
    rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "opponents/size" in row][-1]
    assert last["opponents/size"] == 2 and 0 <= last["opponents/score_worst"] <= last["opponents/score"] <= 1
    assert not any("train/opponent" in row for row in rows)


def test_self_play_learns_from_all_sides(tmp_path: Path) -> None:
    """It is what the world's own key for it does."""
    own = (*QUICK, *PONG, "mdp.opponent=self", "budget.steps=1000")
    assert go(*own, f"hydra.run.dir={tmp_path / 'world'}") == 0
    assert go(*QUICK, *PONG, "opponents=self", "budget.steps=1000", f"hydra.run.dir={tmp_path / 'group'}") == 0
    states = [checkpoint.run_state(tmp_path / name)[1] for name in ("world", "group")]
    assert str(states[0]["learner"]) == str(states[1]["learner"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mdp=cartpole"], "evorl: opponents: the games of Gymnasium have one side, so no opponent"),
        (["ec=pbt"], "evorl: opponents: opponents are those of one learner so far, with ec=none"),
        (["rl=vtrace"], "evorl: opponents: opponents are chosen between two batches; add rl.asynchronous=false"),
        (["opponents.capacty=3"], "evorl: opponents.capacty: unknown key; did you mean opponents.capacity?"),
        (
            ["opponents.choice=hrd"],
            "evorl: opponents.choice: expected one of even, hard, newest, uniform, got 'hrd'; did you mean hard?",
        ),
        (
            ["opponents=none", "opponents.latest=1"],
            "evorl: opponents.latest: unknown key of opponents=none; it belongs to opponents=past, opponents=pfsp",
        ),
        (["opponents=pats"], "evorl: opponents: no choice 'pats'; did you mean past?"),
    ],
)
def test_what_is_refused(words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go("opponents=past", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert said.startswith(text) and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()
