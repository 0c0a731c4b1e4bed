"""Plugins: found without an import, chosen as evorl's own, named when they fail, and missed in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import yaml
from harness import experiment_of, go
from plugin_packages import add_metadata, on_path, write

import evorl
from evorl import export
from evorl.cli.plugin_check import Nonconformity, check_files
from evorl.record import layout, metrics
from evorl.record.provenance import plugins_of
from evorl.util import plugins

SHORT = ("record.tensorboard=false", "eval.episodes=2", "eval.every=0", "rl.net.hidden=[8]", "hydra.run.dir=run")
TRAINS = ("mdp=cartpole", "rl=my_lab", "rl.slots=8", "rl.horizon=16", "budget.steps=256", *SHORT)
WITH_PPO = ("mdp=cartpole", "rl=ppo", "~tuned", *TRAINS[2:], "rl.minibatch=64")
REPLAYS = ("mdp=cartpole", "~tuned", "rl.warm_up=64", "rl.batch=8", "budget.steps=128", *SHORT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A plugin, my_lab, that Python finds."""
    monkeypatch.chdir(tmp_path)
    folder = add_metadata(write(tmp_path))
    with on_path(folder):
        experiment_of.cache_clear()
        yield folder


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def first_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.partition("\n")[0]


def test_it_is_found_and_not_imported(folder: Path) -> None:
    (plugin,) = plugins.installed().values()
    assert plugin == ("my_lab", "0.1.0", folder / "my_lab") and plugin.conf == folder / "my_lab" / "conf"
    assert go("mdp=cartpole", "rl=ppo", "--cfg", "job") == 0
    assert "my_lab" not in sys.modules


def test_its_choices_are_listed_with_their_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go("--help") == 0
    out = capsys.readouterr().out
    for summary in ("Policy gradient with a quadratic penalty", "Mutants of the best so far", "Walk along a line to"):
        assert "  my_lab " in out and summary in out


def test_a_run_with_it_is_like_any_other(folder: Path) -> None:
    assert go(*TRAINS) == 0
    assert plugins_of(Path("run")) == {"my_lab": "0.1.0"}
    rows = [json.loads(line) for line in Path("run", "metrics.jsonl").read_text().splitlines()]
    assert any("my_lab/penalty" in row for row in rows)
    assert go("resume=run", "budget.steps=384") == 0
    run = evorl.load("run")
    assert run.policy.act(np.zeros(4)) in (0, 1) and run.result is not None and run.result["steps"] == 384
    assert type(run.experiment.rl).__module__ == "my_lab.algorithm"


def test_its_evolver_and_its_world(folder: Path) -> None:
    words = ("ec=my_lab", "ec.population=4", "ec.episodes=1", "eval.candidates=0", "budget.steps=600", *SHORT)
    assert go("mdp=my_lab", *words) == 0
    assert plugins_of(Path("run")) == {"my_lab": "0.1.0"}
    rows = Path("run", "metrics.jsonl").read_text()
    assert "my_lab/worst_parent" in rows and evorl.load("run").policy.act(np.zeros(2)) in (0, 1, 2)


def test_its_sampler_of_transitions(folder: Path) -> None:
    assert go(*REPLAYS, "rl=dqn", "rl.sampling=my_lab", "+rl.replay.own.my_lab.share=0.25") == 0
    assert plugins_of(Path("run")) == {"my_lab": "0.1.0"}


def test_its_sampler_beside_another(folder: Path) -> None:
    made = experiment_of(
        "mdp=cartpole", "rl=vtrace", "~tuned", "rl.batch=4", "rl.sampling.uniform=0", "+rl.sampling.my_lab=0.5"
    )
    assert made.rl.mix.sizes(4) == {"queue": 2, "my_lab": 2} and made.packages == ("my_lab",)
    assert made.rl.mix.keys["my_lab"].share == 0.5


def test_its_network(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*WITH_PPO, "rl.net.encoder=my_lab", "+rl.net.own.my_lab.waves=5") == 0
    assert plugins_of(Path("run")) == {"my_lab": "0.1.0"}
    assert go("resume=run", "budget.steps=384") == 0
    run = evorl.load("run")
    shape = cast(Any, run.policy.learner).policy.encoders.frequencies.shape
    assert run.policy.act(np.zeros(4)) in (0, 1) and shape == (4, 5)
    assert export.main(["run=run", "out=policy.onnx", "episodes=1"]) == 0 and Path("policy.onnx").exists()
    change(folder / "my_lab" / "network.py", "angle.sin(), angle.cos()", "angle.sinh(), angle.cosh()")
    sys.modules.pop("my_lab.network")
    capsys.readouterr()
    assert export.main(["run=run", "out=other.onnx", "episodes=1"]) == 2
    line = "evorl: format: aten.sinh.default has no translation to ONNX; format=torch writes this network"
    assert first_line(capsys) == line and not Path("other.onnx").exists()


def test_a_network_that_fails_names_the_plugin(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, words = folder / "my_lab" / "network.py", (*WITH_PPO, "rl.net.encoder=my_lab")
    info = folder / "my_lab-0.1.0.dist-info"
    info.rename(folder / "away")
    assert go(*words) == 2
    assert first_line(capsys).startswith("evorl: rl.net.encoder: no encoder 'my_lab'; ")
    (folder / "away").rename(info)
    change(path, "class MyLab(Encoder):", "class Another(Encoder):")
    assert go(*words) == 2
    line = "evorl: rl.net.encoder: plugin my_lab: my_lab.network:MyLab cannot be imported"
    assert first_line(capsys).startswith(line) and not Path("run").exists()
    sys.modules.pop("my_lab.network")
    change(path, "class Another(Encoder):", "class MyLab(Encoder):")
    change(path, "        angle = x @", "        angle = x[10**6] @")
    assert go(*words) == 1
    assert first_line(capsys).startswith("evorl: plugin my_lab: IndexError: ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("rl=ppo", "rl.net.encoder=my_lap"), "rl.net.encoder: no encoder 'my_lap'; did you mean my_lab?"),
        (
            ("rl=ppo", "rl.net.encoder=my_lab", "+rl.net.own.my_lab.wave=1"),
            "rl.net.own.my_lab.wave: unknown key; did you mean waves?",
        ),
        (
            ("rl=dqn", "rl.sampling=my_lap"),
            "rl.sampling: no sampler 'my_lap'; did you mean my_lab?",
        ),
        (
            ("rl=dqn", "rl.sampling=my_lab", "+rl.replay.own.my_lab.shar=1"),
            "rl.replay.own.my_lab.shar: unknown key; did you mean share?",
        ),
        (
            ("rl=ppo", "+rl.net.own.my_lap.waves=1"),
            "rl.net.own.my_lap: no plugin has this name; did you mean my_lab?",
        ),
        (
            ("rl=dqn", "+rl.replay.own.my_lap.share=1"),
            "rl.replay.own.my_lap: no plugin has this name; did you mean my_lab?",
        ),
        (("rl=my_lap",), "rl: no choice 'my_lap'; did you mean my_lab?"),
        (("rl=my_lab", "rl.epsilom=1"), "rl.epsilom: unknown key; did you mean rl.epsilon?"),
        (("rl=my_lab", "rl.epsilon=-1"), "rl.epsilon: expected float > 0.0, got -1"),
    ],
)
def test_wrong_words(folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str) -> None:
    assert go("mdp=cartpole", "~tuned", *words) == 2
    assert capsys.readouterr().err == f"evorl: {line}\n" and not Path("runs").exists()


# ------------------------------------------------------------------ failures


def test_without_it_a_run_tells_what_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its module can be imported, but is neither installed nor trusted."""
    assert go(*TRAINS) == 0
    sys.modules.pop("my_lab.algorithm"), sys.modules.pop("my_lab")
    (folder / "my_lab-0.1.0.dist-info").rename(folder / "away")
    line = "run was made with the plugin my_lab 0.1.0, which is not installed here"
    capsys.readouterr()
    assert go("resume=run", "budget.steps=384") == 2
    assert first_line(capsys).startswith(f"evorl: resume: {line}")
    with pytest.raises(ValueError, match=line):
        evorl.load("run")
    assert go(*TRAINS[:1], "init=run", "rl._target_=my_lab.algorithm.MyLab", "hydra.run.dir=other") == 2
    assert first_line(capsys).startswith("evorl: rl._target_: my_lab.algorithm.MyLab is outside evorl")
    assert "my_lab" not in sys.modules
    kept = Path("run", ".hydra", "config.yaml").read_text()
    sampler = {"_target_": "evorl.rl.dqn.DQN", "sampling": "my_lab"}
    network = {"_target_": "evorl.rl.ppo.PPO", "net": {"encoder": "my_lab", "own": {"my_lab": {"waves": 5}}}}
    for rl in (sampler, network):
        Path("run", ".hydra", "config.yaml").write_text(yaml.safe_dump({**yaml.safe_load(kept), "rl": rl}))
        with pytest.raises(ValueError, match=line):
            evorl.load("run")
    Path("run", ".hydra", "config.yaml").write_text(kept)
    assert evorl.load("run", trust=["my_lab"]).policy.act(np.zeros(4)) in (0, 1)


def test_a_module_that_fails_names_the_plugin(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "my_lab" / "algorithm.py"
    change(path, "import torch\n", "import torch\nimport not_there\n")
    assert go(*TRAINS) == 2
    line = "plugin my_lab: rl._target_: my_lab.algorithm.MyLab needs not_there, which is not installed"
    assert capsys.readouterr().err == f"evorl: {line}\n"
    change(path, "import not_there\n", "undefined\n")
    assert go(*TRAINS) == 1
    assert first_line(capsys) == "evorl: plugin my_lab: NameError: name 'undefined' is not defined"
    change(path, "undefined\n", "(\n")
    assert go(*TRAINS) == 1
    assert first_line(capsys).startswith("evorl: plugin my_lab: SyntaxError: ")
    assert not Path("run").exists()


def test_a_loss_that_fails_names_the_plugin(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(folder / "my_lab" / "algorithm.py", "        bonus = entropy.mean()\n", "        bonus = entropy[10**6]\n")
    assert go(*TRAINS) == 1
    line = first_line(capsys)
    assert line.startswith("evorl: plugin my_lab: IndexError: ")
    assert json.loads(Path("run", "failure.json").read_bytes())["reason"] == line.removeprefix("evorl: ")


def test_a_config_file_that_fails_names_the_plugin(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "my_lab" / "conf" / "rl" / "my_lab.yaml"
    change(path, "epsilon: 0.2", "epsilon: [0.2")
    assert go(*TRAINS) == 2
    err = capsys.readouterr().err
    assert err.startswith("evorl: plugin my_lab: ") and "my_lab.yaml" in err and err.count("\n") == 1
    path.write_text("_target_: my_lab.algorithm.Other\n")
    assert go(*TRAINS) == 2
    assert first_line(capsys).startswith("evorl: rl._target_: plugin my_lab: my_lab.algorithm.Other is no ")
    path.write_text("_target_: os.path.Other\n")
    assert go(*TRAINS) == 2
    assert first_line(capsys).startswith("evorl: rl._target_: os.path.Other is outside evorl")


def test_two_plugins_with_one_choice(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = add_metadata(write(tmp_path, "other", ["algorithm"]))
    (other / "other" / "conf" / "rl" / "other.yaml").rename(other / "other" / "conf" / "rl" / "my_lab.yaml")
    with on_path(other):
        assert go(*TRAINS) == 2
    line = "rl: plugin my_lab and plugin other both have a choice 'my_lab'; uninstall one of them"
    assert capsys.readouterr().err == f"evorl: {line}\n"


@pytest.mark.slow_cases("words2-rl.sampling")
@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("rl=ppo", "rl.net.encoder=my_lab"), "rl.net.encoder"), (("rl=dqn", "rl.sampling=my_lab"), "rl.sampling"),
        (("rl=vtrace", "rl.batch=4", "rl.sampling.uniform=0", "+rl.sampling.my_lab=0.5"), "rl.sampling"),
    ],
)  # fmt: skip
def test_two_plugins_with_one_network_or_sampler(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], key: str
) -> None:
    other = add_metadata(write(tmp_path, "other", ["network", "sampler"]))
    change(other / "other-0.1.0.dist-info" / "entry_points.txt", "other = other.net", "my_lab = other.net")
    change(other / "other-0.1.0.dist-info" / "entry_points.txt", "other = other.samp", "my_lab = other.samp")
    with on_path(other):
        assert go("mdp=cartpole", "~tuned", *words) == 2
    line = f"{key}: plugin my_lab and plugin other both have a choice 'my_lab'; uninstall one of them"
    assert capsys.readouterr().err == f"evorl: {line}\n" and not Path("runs").exists()


def test_a_choice_of_evorl_stays_what_it_is(folder: Path) -> None:
    conf = folder / "my_lab" / "conf" / "rl"
    (conf / "ppo.yaml").write_text((conf / "my_lab.yaml").read_text())
    assert type(experiment_of("mdp=cartpole", "rl=ppo").rl).__module__ == "evorl.rl.ppo"
    with pytest.raises(Nonconformity, match=r"conf/rl/ppo.yaml has the name of a choice of evorl"):
        check_files(folder / "my_lab")


def test_a_package_that_is_not_installed_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write(tmp_path)
    with on_path(folder):
        assert plugins.installed() == {}
        conf = f"--config-dir={folder / 'my_lab' / 'conf'}"
        assert go(conf, *TRAINS) == 2 and "my_lab" not in sys.modules
        assert go(conf, *TRAINS, "trust=[my_lab]") == 0
        assert plugins_of(Path("run")) == {}
        assert json.loads(Path("run", "provenance.json").read_bytes())["plugins"] == {"my_lab": None}
        assert go("resume=run", "budget.steps=384", "trust=[my_lab]") == 0


# ------------------------------------------------------------------ metrics


def test_metrics_are_declared(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert metrics.declared()["my_lab/penalty"].unit == "reward"
    assert "my_lab/penalty" in layout.charts()[layout.OF_PLUGINS]
    charts = layout.charts_of(["my_lab/penalty", "my_lab/other", "loss/policy"])
    assert [*charts[layout.OF_PLUGINS]] == ["loss/policy", "my_lab/penalty"]
    metrics.check(["my_lab/penalty", "my_lab/undeclared"], ["my_lab"])
    metrics._declared.cache_clear()
    (folder / "my_lab" / "metrics.yaml").write_text("penalty: reward\n")
    assert metrics.declared() == {} and "plugin my_lab: its metrics have no units" in caplog.text
    with pytest.raises(Nonconformity, match=r"penalty: expected \[unit, description\]"):
        check_files(folder / "my_lab")
    metrics._declared.cache_clear()


@pytest.mark.parametrize("text", ["[]", "a b: [x, y]", "{1: [x, y]}", "a: [x]", "a: &b [x, *b]", "a: ["])
def test_a_declaration_of_another_form(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.yaml").write_text(text)
    plugin = plugins.Plugin("mine", "1", tmp_path)
    if text == "[]":
        assert metrics.read_declaration(plugin) == {}
        return
    with pytest.raises(ValueError):
        metrics.read_declaration(plugin)
