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
from evorl.analysis.runs import RunRecord
from evorl.reproduction import affected, check, pages, papers, parts
from evorl.reproduction.parts import Sweep
from evorl.reproduction.table import Analysis, Curves, Profile, Repeated, Results, Table
from evorl.util.command import literal
from evorl.util.errors import BadRequest

PPO = Sweep("ppo", ("seed=0,1", "mdp=cartpole", "rl=ppo"))
TD3 = Sweep("td3", ("seed=0", "mdp=halfcheetah", "rl=td3"))
PBT = Sweep("pbt", ("seed=0", "mdp=cartpole", "ec=pbt"))
DQN = Sweep("dqn", ("seed=0", "mdp=atari_noframeskip", "rl=dqn"))
EXPERIMENT = Sweep("experiment", ("seed=0", "+experiment=marvin/cartpole"))


@pytest.mark.parametrize(
    ("file", "touched"),
    [
        ("pyproject.toml", "ppo td3 pbt dqn"),
        ("hydra_plugins/evorl_sweeper/__init__.py", "ppo td3 pbt dqn"),
        ("conf/config.yaml", "ppo td3 pbt dqn"),
        ("evorl/training/session.py", "ppo td3 pbt dqn"),
        ("evorl/mdp/__init__.py", "ppo td3 pbt dqn"),
        ("evorl/rl/core.py", "ppo td3 pbt dqn"),
        ("evorl/rl/ppo.py", "ppo pbt"),
        ("evorl/rl/td3.py", "td3"),
        ("evorl/rl/ddpg.py", "td3"),
        ("evorl/ec/pbt.py", "pbt"),
        ("conf/rl/td3.yaml", "td3"),
        ("conf/mdp/cartpole.yaml", "ppo pbt"),
        ("conf/mdp/gymnasium.yaml", "ppo td3 pbt"),
        ("conf/mdp/atari.yaml", "dqn"),  # that of NoFrameskip builds on it
        ("conf/tuned/atari_dqn.yaml", "dqn"),
        ("conf/tuned/cartpole_ppo.yaml", "ppo pbt"),
        ("conf/tuned/cartpole_dqn.yaml", ""),
        ("conf/tuned/gone.yaml", "ppo td3 pbt dqn"),  # any of them could have composed it
        ("conf/experiment/rainbow.yaml", ""),
        ("evorl/analysis/html_page.py", ""),
        ("docs/ppo.md", ""),
        ("tests/rl/test_ppo.py", ""),
    ],
)
def test_a_change_affects_the_runs_that_import_or_compose_it(file: str, touched: str) -> None:
    assert " ".join(one.name for one in (PPO, TD3, PBT, DQN) if affected.affects([file], one)) == touched


def test_an_experiment_is_affected_by_what_it_names() -> None:
    assert affected.affects(["evorl/ec/openai_es.py"], EXPERIMENT)
    assert affected.affects(["conf/experiment/marvin/cartpole.yaml"], EXPERIMENT)
    assert affected.affects(["conf/mdp/cartpole.yaml"], EXPERIMENT)
    assert not affected.affects(["conf/experiment/marvin/ours.yaml", "conf/mdp/marvin.yaml"], EXPERIMENT)


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


def curves(*values: Sequence[float], first: int = 0) -> Curves:
    return {first + n: list(curve) for n, curve in enumerate(values)}


def verdict(old: Curves, new: Curves) -> check.Verdict:
    return check.verdict(old, new, margin=10.0)


def test_equal_bits_are_told_as_such() -> None:
    old = curves([0, 1.0], [0, 2.0], [0, 3.0])
    assert verdict(old, curves([0, 1.0], [0, 2.0])) == check.Verdict(2, check.SAME_BITS)
    assert verdict(old, curves([0, 1.0], [0, 2.1], [0, 3.0])).words.startswith("equivalent (within 10)")


def test_curves_with_the_same_gap_are_equal() -> None:
    old, new = (curves([float("nan"), 1.0], [0, 2.0]) for _ in range(2))
    assert verdict(old, new) == check.Verdict(2, check.SAME_BITS)
    assert verdict(old, curves([0.0, 1.0], [0, 2.0])).words != check.SAME_BITS


def test_other_numbers_of_evaluations_differ() -> None:
    found = check.Verdict(2, "differs: other numbers of evaluations", differs=True)
    old = curves([0, 1.0], [0, 2.0])
    assert verdict(old, curves([0, 1.0, 2.0], [0, 2.0])) == found == verdict(old, curves([0.0], [0.0], first=5))
    uneven = verdict(curves([0, 1.0, 1.0], [0, 2.0]), curves([0, 1.5, 1.5], [0, 2.5]))
    assert uneven.words.startswith("equivalent")  # each seed has as many as before
    assert verdict(old, {}).words == "other bits, and too few runs to tell more"


def test_runs_that_learn_something_else_differ() -> None:
    old, new = curves(*([0, x] for x in range(5))), curves(*([0, x + 90] for x in range(5)), first=5)
    found = verdict(old, new)
    assert found.differs and found.words == "differs (p = 0.0079)"
    assert found.differences[0].value == pytest.approx(90) and found.differences[1].value == pytest.approx(45)
    told = check.report({"ppo": found, "a2c": found})
    assert "| ppo | 5 | differs (p = 0.0079) | 90 [" in "\n".join(told)
    assert told[-1].startswith("2 tests at 1%: without any difference, 2 % of such checks say that something differs.")
    assert check.report({}) == ["nothing that the changes could affect"]


def test_what_the_runs_cannot_tell_is_undecided() -> None:
    old, new = curves([0, 0.0], [0, 90.0], [0, 50.0]), curves([0, 10.0], [0, 40.0], [0, 99.0], first=5)
    assert verdict(old, new).words.startswith("undecided (p = ")
    assert verdict(old, curves([0, 1.0], first=5)).words == "other bits, and too few runs to tell more"
    nothing = verdict(old, curves(*[[0, float("nan")]] * 3, first=5))
    assert nothing.differs and nothing.words == "differs: returns that are not finite"


# ------------------------------------------------------------------ a small table, checked

SMALL = ("+debug=tiny", "mdp=cartpole", "budget.steps=256", "eval.every=128", "record.tensorboard=false")


def read(runs: Sequence[RunRecord]) -> Curves:
    return {run.seed: run.series["eval/return_mean"].values.tolist() for run in runs if run.result is not None}


def analyse(there: Results) -> Analysis | None:
    found = read(there.runs)
    return Analysis(header=["n"], rows=[[str(len(found))]], data={"curves": found}) if found else None


def repeated(data: Mapping[str, Any]) -> dict[str, Repeated]:
    return {"PPO": Repeated("pair", {int(seed): curve for seed, curve in data["curves"].items()}, 10.0, read)}


TABLE = Table(
    title="A small table", of="CartPole", claim="it is played", source="ours", about="Two seeds.",
    profiles={"ci": Profile("two seeds", 0.0, [Sweep("pair", ("seed=1,2", *SMALL))])},
    analyse=analyse, measured=str, repeated=repeated,
)  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of the table at another learning rate, in a folder of its own."""
    place = tmp_path_factory.mktemp("result")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_run", lambda command: forked.evorl("run", *command[3:], cwd=place).returncode)
        sweeps = [*TABLE.profiles["ci"].parts]
        assert all(part.carry_out(place / "runs", ["rl.lr=1e-2"]) for part in sweeps)
    told = analyse(Results("ci", parts.runs_of(place / "runs", sweeps), {}))
    assert told is not None
    pages.write(place, "small", pages.content(TABLE, told, "ci", ["rl.lr=1e-2"], {}, None), told)
    return place


def verdicts(table: Table, runs: Path, out: Path, *words: Any) -> dict[str, check.Verdict]:
    return dict(check.check("test/small", table, runs, out, *words))


@pytest.mark.slow
def test_other_bits_on_a_processor_with_other_instructions_are_explained(result: Path) -> None:
    kept, here = pages.read(result, "small"), check.provenance.kernels()
    assert kept is not None and here == pages.machine("")["kernels"]
    same, other = ({"ppo": check.Verdict(2, words)} for words in (check.SAME_BITS, "undecided (p = 0.5)"))
    unknown = check.report(other, kept)
    kept["machine"]["kernels"] = here
    assert check.report(other, kept) == unknown
    kept["machine"]["kernels"] = "MMX"
    why = f"PyTorch's kernels used MMX for the result and use {here} here, which round differently."
    assert check.report(other, kept) == [*unknown, "", why]
    assert why not in check.report(same, kept)
    kept["machine"] |= {"kernels": here, "cpu": "Z80"}
    assert "The result was made on Z80, and this is " in check.report(other, kept)[-1]


def test_runs_made_again_have_the_same_bits(result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: forked.evorl("run", *command[3:], cwd=tmp_path).returncode)
    assert verdicts(TABLE, tmp_path / "again", result) == {"PPO": check.Verdict(2, check.SAME_BITS)}

    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    assert verdicts(TABLE, tmp_path / "other", result, (), ["docs/ppo.md", "benchmarks/test/results/a.md"]) == {}
    with pytest.raises(pytest.fail.Exception):  # the declarations of the table have changed
        verdicts(TABLE, tmp_path / "other", result, (), ["benchmarks/test/small.py"])


def test_runs_of_other_seeds_lie_apart(result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are numbered, so a sweep of other seeds in the same place is refused."""
    places = []
    monkeypatch.setattr(parts, "_run", lambda command: places.append(command[4]) or 1)
    for also in ((), ("seed=1,2,3",), ("seed=5", "seed=5,6")):
        verdicts(TABLE, tmp_path, result, also)
    runs = [tmp_path, tmp_path / "seeds-1,2,3", tmp_path / "seeds-5,6"]
    assert places == [f"hydra.sweep.dir={literal(str(place / 'pair'))}" for place in runs]


def test_what_cannot_be_made_again_is_told(result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: 1)
    assert verdicts(TABLE, tmp_path, result) == {"PPO": check.Verdict(0, "failed", differs=True)}
    empty = replace(TABLE, profiles={"ci": Profile("nothing", 0.0, [])})
    gone = check.Verdict(0, "is no longer part of the table", differs=True)
    assert verdicts(empty, tmp_path, result) == {"PPO": gone}
    with pytest.raises(BadRequest, match="test/small has no check; those to check: "):
        verdicts(replace(TABLE, repeated=None), tmp_path, result)
    with pytest.raises(BadRequest, match=f"test/small has no result in {tmp_path}"):
        verdicts(TABLE, tmp_path, tmp_path)


def test_the_new_runs_of_each_state_of_the_code_lie_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "evorl").mkdir()
    code = tmp_path / "evorl" / "a.py"
    code.write_text("x = 1")
    first = check.place("suite/on_policy")
    assert first == check.place("suite/on_policy") and first.parent == tmp_path / "runs" / "suite"
    code.write_text("x = 2")
    assert check.place("suite/on_policy") != first
    code.write_text("x = 1")
    versions = check.provenance.versions()
    monkeypatch.setattr(check.provenance, "versions", lambda: {**versions, "torch": "other"})
    assert check.place("suite/on_policy") != first


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["marvin/walk", "--check"], "marvin/walk has no check; those to check: suite/on_policy, "),
        (["suite/on_policy", "--check", "rl.lr=1"], "rl.lr: --check makes the runs of a result again: it takes runs, "),
        (["suite/on_policy", "--check", "--draw"], "--check and --draw exclude each other"),
        (["suite/on_policy", "--check", "since=nowhere"], "since: git diff --name-only --no-renames --end-of-options"),
        (
            ["suite/on_policy", "--check", "since=--output=x"],
            "since: git diff --name-only --no-renames --end-of-options",
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


def test_a_check_of_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "tables", list)
    assert reproduce.main(["--check"]) == 2
    assert capsys.readouterr().err == "evorl: no table with a check has a result\n"


def test_a_difference_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(reproduce.signal, "signal", lambda number, handler: None)
    found = [("ppo", check.Verdict(5, "differs (p = 0.001)", differs=True))]
    monkeypatch.setattr(check, "check", lambda *words: iter(found))
    monkeypatch.setattr(papers, "table", lambda name: TABLE)
    with pytest.raises(SystemExit) as ended:
        reproduce.main(["suite/on_policy", "--check"])
    assert ended.value.code == 1 and "| ppo | 5 | differs (p = 0.001) |" in capsys.readouterr().out
