"""Runs in which actions are repeated as often as each episode draws it."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import QUICK, fingerprint, go

from evorl.record import checkpoint

CASES = {
    "vector": ("mdp=pong", "mdp.rounds=2", "mdp.round_steps=30", "opponents=past", "opponents.snapshot=128"),
    "battles": ("mdp=duel", "mdp.ground.limit=10", "opponents=self", "rl.net.lstm=4"),
}


@pytest.mark.slow  # such worlds conform in tests/mdp, and runs of others resume in tests/jobs
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(case: str, tmp_path: Path) -> None:
    words = (*QUICK, *CASES[case], "mdp.frame_skip=[2,5]", "mdp.skip_gamma=0.9", "rl.slots=4", "rl.minibatch=32")
    last = list({word.partition("=")[0]: word for word in words}.values())
    whole, part = tmp_path / "whole", tmp_path / "part"
    assert go(*last, "budget.steps=1600", f"hydra.run.dir={whole}") == 0
    assert go(*last, "budget.steps=800", f"hydra.run.dir={part}") == 0
    stop = checkpoint.steps(part)[-1]  # where it was evaluated, as the other was not
    assert go(f"resume={part}", "budget.steps=1600") == 0
    assert fingerprint(whole, aside=[stop]) == fingerprint(part, aside=[stop])
