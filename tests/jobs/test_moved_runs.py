"""Runs, sweeps and searches that were moved go on: no absolute path is part of a run's identity."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, fingerprint, go

from evorl.analysis.groups import group_runs
from evorl.analysis.runs import read_run
from evorl.cli.config import read_run_config
from evorl.jobs.identity import OtherRun, check_same_config, located, same_players, same_source
from evorl.jobs.job import config_yaml
from evorl.jobs.search import _same_runs, _same_source
from evorl.nets.policy import Net
from evorl.record import checkpoint
from evorl.record.provenance import Source, source_of, write_provenance
from evorl.rl.ppo import PPO
from evorl.util.files import replace

TINY = (*QUICK, "mdp=cartpole", "budget.steps=64", "rl.slots=4", "rl.horizon=4", "rl.minibatch=16")


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a run and a sweep of two jobs that start from it, the second one stopped before its result."""
    project = tmp_path_factory.mktemp("before") / "project"
    project.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        assert go(*TINY, "hydra.run.dir=base") == 0
        assert go("--multirun", *TINY, "init=base", "seed=1,2", "hydra.sweep.dir=grid") == 0
    return project


GRID = ("--multirun", *TINY, "seed=1,2", "hydra.sweep.dir=grid")


def renamed(project: Path, place: Path) -> Path:
    """The project under another name; nothing lies at its old paths while a test runs."""
    shutil.copytree(project, place / "renamed")
    return place / "renamed"


@pytest.mark.slow
@pytest.mark.parametrize(("word", "begun"), [("init=base", True), ("init={0}/base", False)])
def test_a_sweep_of_a_renamed_project_goes_on(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, begun: bool
) -> None:
    project = renamed(grid, tmp_path)
    away = grid.rename(grid.with_name("away"))
    try:
        monkeypatch.chdir(project)
        (project / "grid" / "1" / "result.json").unlink()
        if not begun:  # it was stopped before its first checkpoint, and takes the policy again
            shutil.rmtree(project / "grid" / "1" / "checkpoints")
        before = fingerprint(away / "grid" / "1")
        assert go(*GRID, word.format(project)) == 0
        assert (project / "grid" / "1" / "result.json").exists()
        assert begun or fingerprint(project / "grid" / "1") == before
    finally:
        away.rename(grid)


@pytest.mark.slow
def test_a_source_that_was_moved_alone_is_known_by_its_checkpoint(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = renamed(grid, tmp_path)
    monkeypatch.chdir(project)
    (project / "base").rename(project / "other")
    (project / "grid" / "1" / "result.json").unlink()
    assert go(*GRID, "init=other") == 0
    assert go(*GRID, "init=grid/0") == 2
    assert "init: job 0 was begun with " in capsys.readouterr().err


def test_a_moved_run_without_a_checkpoint_begins_from_the_run_beside_it(grid: Path, tmp_path: Path) -> None:
    project = renamed(grid, tmp_path)
    away = grid.rename(grid.with_name("away"))
    try:
        run = project / "grid" / "0"
        shutil.rmtree(run / "checkpoints")
        (run / "result.json").unlink()
        assert go(f"resume={run}") == 0
        assert fingerprint(run) == fingerprint(away / "grid" / "0")
        assert read_run_config(run, "run")["init"] == str(grid / "base"), "what it was begun with stays written"
    finally:
        away.rename(grid)


# ------------------------------------------------------------------ paths in configs


def run_at(directory: Path, home: str, **config: Any) -> Path:
    (directory / ".hydra").mkdir(parents=True)
    replace(directory / ".hydra" / "hydra.yaml", config_yaml({"hydra": {"runtime": {"output_dir": home}}}))
    replace(directory / ".hydra" / "config.yaml", config_yaml({"seed": 1, **config}))
    return directory


def test_sources_are_the_same_by_path_by_place_or_by_checkpoint(tmp_path: Path) -> None:
    new = run_at(tmp_path / "new" / "sweep" / "3", "/old/sweep/3", init="/old/sweep/0")
    beside, other = str(tmp_path / "new" / "sweep" / "0"), str(tmp_path / "elsewhere")
    assert same_source(new, "/old/sweep/0", "/old/sweep/0") and same_source(new, "/old/sweep/0", beside)
    assert not same_source(new, "/old/sweep/0", other) and not same_source(new, "nothing", beside)
    assert same_source(new, None, None) and not same_source(new, None, beside)
    Path(other).mkdir()
    checkpoint.save(Path(other), 64, {"run": {"steps": 64}}, 1)
    digest = checkpoint.digest(Path(other), 64)
    assert digest is not None and checkpoint.digest(Path(other), 65) is None
    for known, same in ((Source(64, digest), True), (Source(64, "0" * 64), False), (Source(65, digest), False)):
        (new / "provenance.json").unlink(missing_ok=True)
        write_provenance(new, 1, [], known)
        assert source_of(new) == known and same_source(new, "/old/sweep/0", other) is same
    (new / "provenance.json").write_text(json.dumps({"init_step": 64}))  # of an earlier version
    assert source_of(new) == Source(64, None) and not same_source(new, "/old/sweep/0", other)


def test_the_config_of_a_job_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    run = run_at(tmp_path / "s" / "1", "/old/s/1", init="/old/base", replay="/old/s/0", record={"group": "old"})
    here = {"init": str(tmp_path / "base"), "replay": str(tmp_path / "s" / "0"), "record": {"group": "s"}, "seed": 1}
    check_same_config(run, here, "hydra.sweep.dir")
    for key, value in (("init", str(tmp_path / "x")), ("init", None), ("replay", "/x"), ("seed", 2)):
        with pytest.raises(OtherRun) as refused:
            check_same_config(run, {**here, key: value}, "hydra.sweep.dir")
        assert refused.value.key == key


def test_keys_that_an_older_version_lacked_are_at_their_defaults(tmp_path: Path) -> None:
    ours = {"_target_": "evorl.rl.ppo.PPO", "lr": 0.1, "net": {"hidden": [8], "lstm": 4}}
    older = {**ours, "net": {"lstm": 4}}
    run = run_at(tmp_path / "s" / "1", "/old/s/1", rl=older, device="auto")
    default = {"hidden": list(Net().hidden), "lstm": 4}
    rl = {**older, "passes": PPO().passes, "net": default}
    here: dict[str, Any] = {"rl": rl, "device": "auto", "seed": 1, "budget": {"seconds": None}, "opponents": {}}
    check_same_config(run, here, "hydra.sweep.dir")
    changes: dict[str, Any] = {
        "opponents.size": {"opponents": {"size": 3}},
        "rl.passes": {"rl": {**rl, "passes": PPO().passes + 1}},
        "rl.net.hidden": {"rl": {**rl, "net": ours["net"]}},
        "budget.seconds": {"budget": {"seconds": 3.0}},
        "rl.unheard": {"rl": {**rl, "unheard": 1}},
    }
    for key, change in changes.items():
        with pytest.raises(OtherRun) as refused:
            check_same_config(run, {**here, **change}, "hydra.sweep.dir")
        assert refused.value.key == key


def test_runs_that_a_moved_run_names_are_found_beside_it(tmp_path: Path) -> None:
    run = run_at(tmp_path / "a" / "1", "/old/a/1")
    data = {"init": "/old/base", "replay": "/old/a/0", "seed": 3}
    assert located(run, data) == data, "nothing lies there"
    base, first = run_at(tmp_path / "base", "/old/base"), run_at(tmp_path / "a" / "0", "/old/a/0")
    assert located(run, data) == {"init": str(base), "replay": str(first), "seed": 3}
    there = run_at(tmp_path / "still", "/old/still")
    assert located(run, {"init": str(there), "replay": None}) == {"init": str(there), "replay": None}


def test_other_runs_in_a_pool_are_known_where_they_were_moved_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = {"runs": ["/old/base@best", "/old/bases/*"], "size": 3}
    run = run_at(tmp_path / "s" / "0", "/old/s/0", opponents=past)
    words = [f"{tmp_path / 'base'}@best", f"{tmp_path / 'bases'}/*"]
    assert same_players(run, past["runs"], words) and same_players(run, past["runs"], past["runs"])
    assert not same_players(run, past["runs"], words[:1]) and not same_players(run, past["runs"], "nothing")
    assert not same_players(run, past["runs"], [words[0].replace("best", "all"), words[1]])
    here = {"seed": 1, "opponents": {**past, "runs": words}}
    check_same_config(run, here, "hydra.sweep.dir")
    with pytest.raises(OtherRun, match=r"opponents\.runs"):
        check_same_config(run, {**here, "opponents": {**past, "runs": words[::-1]}}, "hydra.sweep.dir")
    data = {"init": None, "opponents": past}
    assert located(run, data) == data, "nothing lies there"
    run_at(tmp_path / "base", "/old/base")
    run_at(tmp_path / "bases" / "1", "/old/bases/1")
    assert located(run, data) == {"init": None, "opponents": {"runs": words, "size": 3}}
    monkeypatch.chdir(tmp_path)
    assert _same_runs(tmp_path / "s", "words.opponents.runs", "[base@best,bases/*]")
    assert not _same_runs(tmp_path / "s", "words.opponents.runs", "[base,bases/*]")
    assert not _same_runs(tmp_path / "s", "words.opponents.runs", None)


def test_of_two_runs_the_one_with_the_checkpoint_counts(tmp_path: Path) -> None:
    """A copied project beside its original: the run at the old path may have gone on, or be another one."""
    old, new = tmp_path / "old", tmp_path / "new"
    run, base = run_at(new / "1", str(old / "1")), run_at(new / "base", str(old / "base"))
    other = run_at(old / "base", str(old / "base"))
    for place, steps in ((base, 64), (other, 65)):
        checkpoint.save(place, 64, {"run": {"steps": steps}}, 1)
    data = {"init": str(other), "replay": None}
    assert located(run, data) == data, "a run of an earlier version, which noted no checksum"
    write_provenance(run, 1, [], Source(64, checkpoint.digest(base, 64)))
    assert located(run, data) == {"init": str(base), "replay": None}


def test_a_run_without_a_checkpoint_does_not_begin_from_another_run(
    grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = renamed(grid, tmp_path)
    run, base = project / "grid" / "0", project / "base"
    shutil.rmtree(run / "checkpoints")
    (run / "result.json").unlink()
    shutil.rmtree(base / "checkpoints")
    found = checkpoint.newest(grid / "base")
    assert found is not None
    state = found[1]
    checkpoint.save(base, state["run"]["steps"], {**state, "judged": None}, 1)  # of the same step
    away = grid.rename(grid.with_name("away"))
    try:
        assert go(f"resume={run}") == 2
    finally:
        away.rename(grid)
    said = f"evorl: init: {base} is another run than the one that {run} started from\n"
    assert capsys.readouterr().err == said


def test_the_first_job_of_a_search_says_what_all_of_them_start_from(tmp_path: Path) -> None:
    assert not _same_source(tmp_path / "s", "base")
    run_at(tmp_path / "s" / "0", "/old/s/0", init="/old/base")
    assert _same_source(tmp_path / "s", str(tmp_path / "base")) and _same_source(tmp_path / "s", "/old/base")
    assert not _same_source(tmp_path / "s", "other") and not _same_source(tmp_path / "s", None)


def test_a_report_names_the_parents_of_moved_jobs_by_their_numbers(tmp_path: Path) -> None:
    jobs = [run_at(tmp_path / "s" / str(n), f"/old/s/{n}", init=f"/old/s/{n - 2}" if n > 1 else None) for n in range(4)]
    found = {
        run.config["init"]: group.values["init"] for group in group_runs([*map(read_run, jobs)]) for run in group.runs
    }
    assert found == {None: None, "/old/s/0": "0", "/old/s/1": "1"}
