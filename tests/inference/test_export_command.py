"""`evorl.export`: the file that it writes, and requests that it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from evolution_runs import CASES
from harness import QUICK, WORLDS, go

from evorl import evaluate
from evorl.cli.config import experiment_of_run
from evorl.export import _origin, main
from evorl.inference.file import read_description
from evorl.rl import evaluation


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    words = [*QUICK, "budget.steps=256", "eval.episodes=1"]
    for name, world in {"cartpole": WORLDS["cartpole"], "pong": WORLDS["pong"]}.items():
        assert go(*words, *world, f"hydra.run.dir={place / name}") == 0
    evolved = ("ec=openai_es", "ec.population=4", "ec.episodes=1", "record.tensorboard=false", "eval.episodes=1")
    assert (
        go(*evolved, "mdp=cartpole", "rl.net.activation=tanh", "budget.steps=400", f"hydra.run.dir={place / 'evolved'}")
        == 0
    )
    sphere = ("mdp=problem", "ec=cem", "ec.population=4", "budget.steps=8", "record.tensorboard=false")
    assert go(*sphere, f"hydra.run.dir={place / 'sphere'}") == 0
    return place


def described(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Export with these words; return the file's description."""
    capsys.readouterr()
    assert main([*words, "json=true"]) == 0, capsys.readouterr().err
    about: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return about


def test_the_file_says_what_it_is(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.onnx"
    about = described(capsys, f"run={runs / 'cartpole'}", f"out={path}")
    assert about == read_description(path.read_bytes())
    assert [port["name"] for port in about["inputs"] + about["outputs"]] == ["observation", "action", "logits"]
    assert about["run"] == "cartpole" and about["opset"] == 15 and about["action"]["n"] == 2
    assert about["mdp"]["id"] == "CartPole-v1" and about["seed"] == 0 and "torch" in about["provenance"]["versions"]
    assert about["check"]["decisions"] > 4 and about["check"]["largest_difference"] < 1e-5
    model = onnx.load(path)
    assert [opset.version for opset in model.opset_import] == [15] and model.ir_version == 8
    assert all(not x.HasField("data_location") or x.data_location == 0 for x in model.graph.initializer)
    session = onnxruntime.InferenceSession(path)
    for rows in (1, 5):
        action, logits = session.run(None, {"observation": np.zeros((rows, 4), np.float32)})
        assert action.shape == (rows, 1) and logits.shape == (rows, 2)


def test_a_long_comparison_says_how_far_it_is(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "PROGRESS_PERIOD_S", 0.0)
    assert main([f"run={runs / 'cartpole'}", f"out={tmp_path / 'policy.onnx'}"]) == 0
    assert "evaluating: 0 of 4 episodes, the longest at 0 decisions, 0 s\n" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("which", ["latest", "best"])
def test_of_a_population(which: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = described(capsys, f"run={runs / 'evolved'}", f"out={tmp_path / 'p.onnx'}", f"checkpoint={which}")
    assert about["check"]["largest_difference"] < 1e-5


def test_the_world_of_a_balanced_game_is_the_one_that_its_policy_plays(runs: Path) -> None:
    """And not the designer's, which stands in the config of the run."""
    made = experiment_of_run(runs / "pong")
    speed, game = made.mdp.bat_speed, replace(made.mdp, bat_speed=made.mdp.bat_speed + 1)
    own = _origin(runs / "pong", replace(made, mdp=game), game)["mdp"]
    assert own["bat_speed"] == speed + 1 and own["rounds"] == made.mdp.rounds
    assert own["_target_"] == _origin(runs / "pong", made, None)["mdp"]["_target_"]


@pytest.mark.slow
def test_of_a_balanced_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*CASES["balance"], "ec.population=2", "ec.episodes=2", "budget.steps=400", f"hydra.run.dir={tmp_path}/run")
    assert go(*QUICK, *words) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "population.jsonl").read_text().splitlines()]
    for row in rows[:2]:
        words = (f"run={tmp_path}/run", f"individual={row['id']}", "episodes=1", f"out={tmp_path}/{row['id']}.onnx")
        assert described(capsys, *words)["mdp"]["bat_speed"] == row["genes"]["mdp.bat_speed"]


@pytest.mark.slow
def test_of_torch(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.pt2"
    about = described(capsys, f"run={runs / 'pong'}", f"out={path}", "format=torch", "deterministic=false")
    assert about == read_description(path.read_bytes())
    assert about["inputs"][-1]["name"] == "noise" and about["noise"] == "gumbel"


@pytest.mark.parametrize("name", ["cartpole", "evolved"])
def test_of_stable_baselines3(name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is judged as the run's own policy is."""
    path, run = tmp_path / "policy.zip", f"run={runs / name}"
    about = described(capsys, run, f"out={path}", "format=sb3")
    assert about == read_description(path.read_bytes()) and about["opset"] is None
    assert about["check"]["decisions"] > 4 and about["check"]["largest_difference"] < 1e-5
    returns = []
    for policy in ([], [f"policy=sb3:{path}"]):
        assert evaluate.main([run, *policy, "episodes=3", "json=true"]) == 0
        returns.append(json.loads(capsys.readouterr().out.splitlines()[-1])["return_mean"])
    assert returns[0] == returns[1]


def test_of_cleanrl(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ppo.cleanrl_model"
    about = described(capsys, f"run={runs / 'evolved'}", f"out={path}", "format=cleanrl")
    assert path.exists() and about["check"]["largest_difference"] < 1e-5


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no run directory given"),
        (["run=cartpole"], "out"),
        (["run=nowhere", "out=p.onnx"], "run: "),
        (["run=cartpole", "out=p.onnx", "format=onxx"], "format: "),
        (["run=cartpole", "out=p.pt"], "out: format=onnx makes a file with the suffix .onnx: out=p.onnx"),
        (["run=cartpole", "out=p.onnx", "format=torch"], "out=p.pt2"),
        (["run=cartpole", "out=there.onnx"], "out: there.onnx is there"),
        (["run=cartpole", "out=no/p.onnx"], "out: there is no directory no"),
        (["run=cartpole", "out=/proc/p.onnx"], "out: cannot make /proc/p.onnx: /proc cannot be written"),
        (["run=cartpole", "out=p.onnx", "checkpoint=7"], "checkpoint: '7' is none of latest, last, best, 256"),
        (["run=cartpole", "out=p.onnx", "individual=3"], "individual: this run has no population"),
        (["run=cartpole", "out=p.onnx", "format=unity", "deterministic=false"], "deterministic: "),
        (["run=cartpole", "out=p.onnx", "format=godot", "deterministic=false"], "deterministic: "),
        (["run=cartpole", "out=p.zip", "format=sb3", "deterministic=false"], "deterministic: the file has the whole"),
        (["run=cartpole", "out=p.onnx", "format=sb3"], "out: format=sb3 makes a file with the suffix .zip: out=p.zip"),
        (["run=cartpole", "out=p.pt", "format=cleanrl"], "out=p.cleanrl_model"),
        (
            ["run=cartpole", "out=p.cleanrl_model", "format=cleanrl"],
            "format: CleanRL's program has rl.net.activation=tanh",
        ),
        (["run=cartpole", "out=p.onnx", "episodes=0"], "episodes: "),
        (["run=cartpole", "out=p.onnx", "opset=9"], "opset"),
        (["run=sphere", "out=p.onnx"], "run: a problem has no policy"),
    ],
)
def test_a_bad_request_is_one_line_and_no_file(
    words: list[str], why: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    (runs / "there.onnx").touch()
    before = sorted(runs.iterdir())
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("evorl: ") and err.count("\n") == 1 and why in err
    assert sorted(runs.iterdir()) == before


def test_without_onnx_the_extra_is_named(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from importlib import util

    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "onnx" else find(name, *rest))
    assert main([f"run={runs / 'cartpole'}", f"out={tmp_path / 'p.onnx'}"]) == 2
    assert "needs onnx: pip install 'evorl-suite[export]'" in capsys.readouterr().err


def test_a_file_that_decides_otherwise_is_not_written(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from evorl.inference import file

    right = file.program

    def wrong(*args: Any) -> Any:
        run = right(*args)
        return lambda feed: {**run(feed), "logits": run(feed)["logits"] + 1e-3}

    monkeypatch.setattr(file, "program", wrong)
    assert main([f"run={runs / 'cartpole'}", f"out={tmp_path / 'p.onnx'}"]) == 1
    told = capsys.readouterr().err
    assert "does not decide as the policy does" in told and "Traceback" not in told
    assert [*tmp_path.iterdir()] == []
