"""Runs of a result that are made again: what a change could affect, the verdicts, and requests that cannot be met."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import forked
import pytest

from evorl import reproduce
from evorl.reproduction import affected, check, pages, papers, parts
from evorl.reproduction.parts import Sweep
from evorl.reproduction.table import Analysis, Found, Profile, Repeated, Table
from evorl.util.errors import BadRequest

PPO = Sweep("ppo", ("seed=0,1", "mdp=cartpole", "rl=ppo"))
TD3 = Sweep("td3", ("seed=0", "mdp=halfcheetah", "rl=td3"))
PBT = Sweep("pbt", ("seed=0", "mdp=cartpole", "ec=pbt"))
EXPERIMENT = Sweep("experiment", ("seed=0", "+experiment=marvin/cartpole"))


@pytest.mark.parametrize(
    ("file", "touched"),
    [
        ("pyproject.toml", "ppo td3 pbt"),
        ("conf/config.yaml", "ppo td3 pbt"),
        ("evorl/training/session.py", "ppo td3 pbt"),
        ("evorl/rl/core.py", "ppo td3 pbt"),
        ("evorl/rl/ppo.py", "ppo pbt"),
        ("evorl/rl/td3.py", "td3"),
        ("evorl/rl/ddpg.py", "td3"),
        ("evorl/ec/pbt.py", "pbt"),
        ("conf/rl/td3.yaml", "td3"),
        ("conf/mdp/cartpole.yaml", "ppo pbt"),
        ("conf/mdp/gymnasium.yaml", "ppo td3 pbt"),
        ("conf/tuned/cartpole_ppo.yaml", "ppo pbt"),
        ("conf/tuned/cartpole_dqn.yaml", ""),
        ("evorl/analysis/html_page.py", ""),
        ("docs/ppo.md", ""),
        ("tests/rl/test_ppo.py", ""),
    ],
)
def test_a_change_affects_the_runs_that_import_or_compose_it(file: str, touched: str) -> None:
    assert " ".join(one.name for one in (PPO, TD3, PBT) if affected.affects([file], one)) == touched


def test_an_experiment_is_affected_by_what_it_names() -> None:
    assert affected.affects(["evorl/ec/openai_es.py"], EXPERIMENT)
    assert affected.affects(["conf/experiment/marvin/cartpole.yaml"], EXPERIMENT)
    assert affected.affects(["conf/mdp/cartpole.yaml"], EXPERIMENT)
    assert not affected.affects(["conf/experiment/rainbow.yaml", "conf/mdp/marvin.yaml"], EXPERIMENT)


def test_what_changed_holds_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "old").write_text("1")
    (tmp_path / "same").write_text("1")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    (tmp_path / "old").write_text("2")
    (tmp_path / "new").write_text("1")
    monkeypatch.setattr(affected, "ROOT", tmp_path)
    assert affected.changed("HEAD") == ["old", "new"]
    with pytest.raises(BadRequest, match=r"^since: git diff .*nowhere"):
        affected.changed("nowhere")


# ------------------------------------------------------------------ verdicts


def curves(*values: Sequence[float], first: int = 0) -> Repeated:
    return Repeated("one", {first + n: list(curve) for n, curve in enumerate(values)})


def test_equal_bits_are_told_as_such() -> None:
    old = curves([0, 1.0], [0, 2.0], [0, 3.0])
    found = check.verdict(old, curves([0, 1.0], [0, 2.0]))
    assert found.words == check.SAME_BITS and not found.differs and found.runs == 2
    assert check.verdict(old, curves([0, 1.0], [0, 2.1])).words.startswith("no difference shown (p = ")


def test_runs_that_learn_something_else_differ() -> None:
    old, new = curves(*([0, x] for x in range(5))), curves(*([0, x + 90] for x in range(5)), first=5)
    found = check.verdict(old, new)
    assert found.differs and found.words == "differs (p = 0.0079)"
    assert found.differences[0].value == pytest.approx(90) and found.differences[1].value == pytest.approx(45)
    told = "\n".join(check.report({"ppo": found}))
    assert "| ppo | 5 | differs (p = 0.0079) | 90 [" in told
    assert check.report({}) == ["nothing that the changes could affect"]


# ------------------------------------------------------------------ a small table, checked

SMALL = ("+debug=tiny", "mdp=cartpole", "budget.steps=256", "eval.every=128", "record.tensorboard=false")


def analyse(there: Found) -> Analysis | None:
    done = [run for run in there.runs if run.result is not None]
    found = {run.seed: run.series["eval/return_mean"].values.tolist() for run in done}
    return Analysis(header=["n"], rows=[[str(len(done))]], data={"curves": found}) if done else None


def repeated(data: Mapping[str, Any]) -> dict[str, Repeated]:
    return {"PPO": Repeated("pair", {int(seed): curve for seed, curve in data["curves"].items()})}


TABLE = Table(
    title="A small table", of="CartPole", claim="it is played", source="ours", about="Two seeds.",
    profiles={"ci": Profile("two seeds", 0.0, [Sweep("pair", ("seed=1,2", *SMALL))])},
    analyse=analyse, measured=str, repeated=repeated,
)  # fmt: skip


def test_runs_made_again_have_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: forked.evorl("run", *command[3:], cwd=tmp_path).returncode)
    first = [*TABLE.profiles["ci"].parts]
    assert all(part.carry_out(tmp_path / "first") for part in first)
    told = analyse(Found("ci", parts.runs_of(tmp_path / "first", first), {}))
    assert told is not None
    pages.write(tmp_path / "out", "small", pages.content(TABLE, told, "ci", [], {}, None), told)
    found = check.check("test/small", TABLE, tmp_path / "again", tmp_path / "out")
    assert found == {"PPO": check.Verdict(2, check.SAME_BITS)}

    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    assert check.check("test/small", TABLE, tmp_path / "other", tmp_path / "out", ["docs/ppo.md"]) == {}
    with pytest.raises(BadRequest, match="test/small has no check; those to check: "):
        check.check("test/small", replace(TABLE, repeated=None), tmp_path, tmp_path / "out")
    with pytest.raises(BadRequest, match=f"test/small has no result in {tmp_path}"):
        check.check("test/small", TABLE, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["marvin/walk", "--check"], "marvin/walk has no check; those to check: suite/on_policy, "),
        (
            ["suite/on_policy", "--check", "seed=1"],
            "seed: --check makes the runs of a result again, so it takes runs, ",
        ),
        (
            ["suite/on_policy", "--check", "since=nowhere"],
            "since: git diff --name-only --no-renames nowhere --: fatal: ",
        ),
    ],
)
def test_a_request_that_cannot_be_met(
    words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    monkeypatch.setattr(reproduce.signal, "signal", lambda number, handler: None)
    assert reproduce.main(words) == 2
    assert capsys.readouterr().err.startswith(f"evorl: {line}")


def test_a_difference_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(reproduce.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(check, "check", lambda *words: {"ppo": check.Verdict(5, "differs (p = 0.001)", True)})
    monkeypatch.setattr(papers, "table", lambda name: TABLE)
    with pytest.raises(SystemExit) as ended:
        reproduce.main(["suite/on_policy", "--check"])
    assert ended.value.code == 1 and "| ppo | 5 | differs (p = 0.001) |" in capsys.readouterr().out
