"""Names in place of run directories: ``latest``, the run below runs/ that began last, and kept policies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from harness import go

from evorl import evaluate, export, play, report
from evorl.record import run_names
from evorl.util.errors import BadRequest


def run(name: str, started: str | None, lock: int = 0) -> Path:
    place = Path("runs", name)
    (place / ".hydra").mkdir(parents=True)
    (place / ".hydra" / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    (place / ".lock").touch()
    os.utime(place / ".lock", ns=(lock, lock))
    if started is not None:
        (place / "provenance.json").write_text(started, encoding="utf-8")
    return place


def began(time: str) -> str:
    return json.dumps({"started": time, "resumed": [{"started": "2030"}]})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_one_that_began_last() -> None:
    run("b/20260101-000000-s0", began("2026-01-01T00:00:00+00:00"))
    newest = run("a/20260102-000000-s0", began("2026-01-02T00:00:00+00:00"))
    run("c/20260103-000000-s0", "{torn")
    run("d/20260104-000000-s0", None)
    (Path("runs/e")).mkdir()
    assert run_names.named("latest") == str(newest)
    second = run("a/20260102-000000-s0-1", began("2026-01-02T00:00:00+00:00"), lock=1)
    assert run_names.named("latest") == str(second)
    assert run_names.named("runs/b") == "runs/b"
    Path("latest").mkdir()
    assert run_names.named("latest") == "latest"


def test_without_a_run() -> None:
    with pytest.raises(BadRequest, match=r"^resume: there is no run below runs/ here$"):
        run_names.named("latest", "resume")


def test_every_command_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ("+debug=tiny", "mdp=cartpole", "record.tensorboard=false", "eval.episodes=1", "budget.steps=256")
    for words in ([f"{key}=latest"] for key in ("resume", "init", "replay")):
        assert go(*words) == 2
    assert evaluate.main(["run=latest"]) == 2 and report.main(["latest"]) == 2
    assert capsys.readouterr().err.count("there is no run below runs/ here\n") == 5
    assert go(*tiny, "seed=1") == 0
    (first,) = Path("runs/cartpole-ppo-none").iterdir()
    assert go("resume=latest", "budget.steps=512") == 0
    assert json.loads((first / "result.json").read_bytes())["steps"] == 512
    capsys.readouterr()
    assert evaluate.main(["run=latest", "json=true"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"] == first.name
    assert go(*tiny, "seed=2", "init=latest", "hydra.run.dir=other") == 0
    assert f"init: {first.absolute()}" in Path("other/.hydra/config.yaml").read_text(encoding="utf-8")
    assert report.parse(["latest"])[0] == [str(first)]


def test_a_kept_policy_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Cart-pole's plays 500 steps in each of its episodes, as when it was kept."""
    place = run_names.TABLES / "suite/results/policies/ppo_cartpole"
    assert run_names.named("zoo/suite/ppo_cartpole") == run_names.named("zoo/cartpole_ppo") == str(place)
    assert evaluate.main(["run=zoo/cartpole_ppo", "episodes=2", "json=true"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["return_mean"] == 500
    tiny = ("mdp=cartpole", "record.tensorboard=false", "eval.episodes=1", "budget.steps=256", "rl.horizon=32")
    assert go(*tiny, "init=zoo/cartpole_ppo", "hydra.run.dir=other") == 0
    assert f"init: {place}" in Path("other/.hydra/config.yaml").read_text(encoding="utf-8")
    Path("zoo/cartpole_ppo").mkdir(parents=True)
    assert run_names.named("zoo/cartpole_ppo") == "zoo/cartpole_ppo", "a directory of that name goes first"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("zoo/suite/ppo_cartpol", "run: there is no 'suite/ppo_cartpol'; did you mean suite/ppo_cartpole?"),
        ("zoo/pbt_pong", "run: 'pbt_pong' is lamarckian/pbt_pong or suite/pbt_pong"),
        ("zoo/tennis", "run: there is no 'tennis'; python -m evorl.zoo lists all"),
    ],
)
def test_a_wrong_name_of_a_kept_policy(name: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (evaluate, export, play):
        assert command.main([f"run={name}"]) == 2
    assert capsys.readouterr().err.count(why) == 3


def test_without_a_checkout_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_names, "TABLES", tmp_path)
    with pytest.raises(BadRequest, match="the policies are in benchmarks/ of a checkout: clone the repository"):
        run_names.named("zoo/ppo_pong", "run")
