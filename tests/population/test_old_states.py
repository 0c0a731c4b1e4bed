"""Checkpoints of older versions: runs go on from them as from those of this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from critic_runs import ASYNCHRONOUS as SHARED
from critic_runs import QUICK as QUICK_SHARED
from critic_runs import SYNCHRONOUS
from evolution_runs import ASYNCHRONOUS, CASES, QUICK, in_old_form, journal
from harness import fingerprint, go, newest

from evorl.record import checkpoint

RUNS = {
    "in generations": ((*QUICK, *CASES["es-normal"][:-1]), ()),
    "asynchronous": ((*QUICK, *ASYNCHRONOUS["sga-normal"][:-1]), ()),
    "other genes": ((*QUICK, *ASYNCHRONOUS["pbt"][:-1]), ("+ec.genes.rl.clip=[0.1,0.3]",)),
    "a shared critic": ((*QUICK_SHARED, *SHARED["aes_rl"][:-1]), ()),
    "a critic in turn": ((*QUICK_SHARED, *SYNCHRONOUS["cem_rl"][:-1]), ()),
}
"""Words of a run, and those of its resume."""


@pytest.mark.slow_cases(but=("other genes",))
@pytest.mark.parametrize("case", RUNS)
def test_a_run_goes_on_from_a_checkpoint_in_the_old_form(case: str, tmp_path: Path) -> None:
    words, amended = RUNS[case]
    new, old = tmp_path / "new", tmp_path / "old"
    assert go(*words, "budget.steps=650", f"hydra.run.dir={new}") == 0
    shutil.copytree(new, old)
    found = checkpoint.newest(old)
    assert found is not None
    state = found[1] | {"run": in_old_form(found[1]["run"])}
    checkpoint.save(old, state["run"]["steps"], state, 1)
    assert "flying" in newest(old)["run"] and "in_flight" in newest(new)["run"]
    for run in (new, old):
        assert go(f"resume={run}", "budget.steps=1200", *amended) == 0
    assert journal(old) == journal(new)
    assert fingerprint(old) == fingerprint(new)
