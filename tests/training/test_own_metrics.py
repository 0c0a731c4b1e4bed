"""Metrics of a loss outside evorl: recorded under the package's name, or the run ends with a line that tells it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from harness import QUICK, go

from evorl.record import metrics

OWN = """\
from dataclasses import dataclass
from evorl.rl.ppo import PPO, Learner

@dataclass(frozen=True, kw_only=True)
class Mine(PPO):
    name: str = "custom/policy_squared"

    def learner(self, spec, seed, device):
        return Learning(self, spec, seed, device)

class Learning(Learner):
    def loss(self, *given):
        total, stats = super().loss(*given)
        return total, {**stats, self.hyper.name: stats["loss/value"] * 2}
"""
WORDS = (*QUICK, "mdp=cartpole", "~tuned", "rl._target_=own_loss.Mine", "trust=[own_loss]", "budget.steps=256")


@pytest.fixture(autouse=True)
def own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_loss.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_loss", raising=False)


@pytest.mark.slow_cases("own_loss/squared")
@pytest.mark.parametrize("name", ["custom/squared", "own_loss/squared", "own_loss/critic/squared"])
def test_the_names_of_ones_own(name: str, tmp_path: Path) -> None:
    assert go(*WORDS, f"+rl.name={name}", "hydra.run.dir=run") == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [row for row in rows if "loss/value" in row]
    assert losses and all(row[name] == pytest.approx(2 * row["loss/value"]) for row in losses)


@pytest.mark.slow_cases(but=("own_loss/", "loss/squared", "custom/"))
@pytest.mark.parametrize("name", ["loss/squared", "squared", "other/squared", "own_loss/", "own_loss/a b", "custom/"])
def test_another_name_ends_the_run_with_a_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*WORDS, f"+rl.name='{name}'", "hydra.run.dir=run") == 1
    err = capsys.readouterr().err
    assert err.startswith(f"evorl: '{name}' is not a registered metric (docs/metrics.md)") and err.count("\n") == 1
    assert err.endswith("; a class of your own names its metrics custom/NAME or own_loss/NAME\n")
    assert json.loads((tmp_path / "run" / "failure.json").read_bytes())["reason"] == err.removeprefix("evorl: ").strip()


def test_packages_are_of_the_run() -> None:
    metrics.check(["mine/x", "mine/a/b"], ["mine"])
    for name in ("mine/x", "mine", "yours/x"):
        with pytest.raises(metrics.UnregisteredMetric):
            metrics.check([name], ["mine"] if name != "mine/x" else [])
