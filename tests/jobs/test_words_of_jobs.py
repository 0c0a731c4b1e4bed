"""Words that refer to other keys: each job of a sweep or a search resolves its own, and a resume finds the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, go
from hydra.types import RunMode
from omegaconf import OmegaConf
from sweeping import Sweep

from evorl.analysis.runs import find_runs, read_run
from evorl.analysis.sweeps import read_index, write_index
from evorl.cli import config
from evorl.cli.config import read_run_config
from evorl.cli.overrides import parse
from evorl.jobs.planning import Planned, _check_folders
from evorl.jobs.search import read_search
from evorl.record.lock import lock
from evorl.util.errors import BadRequest
from evorl.util.names import check_names

LR = "rl.lr=tag(log,interval(1e-4,1e-2))"

REFERRING = (
    *("budget.steps=64", "rl.horizon=4,8", "rl.minibatch=${rl.horizon}", "record.name=run-${seed}-${hydra:job.num}"),
    *("seed=3", "hydra.sweep.subdir=${hydra.job.override_dirname}"),
    "hydra.job.config.override_dirname.exclude_keys=[mdp,trust,mdp.poison,rl.slots,rl.passes,rl.net.hidden,rl.minibatch,"
    "record.name,record.tensorboard,eval.every,eval.episodes,checkpoint.every,budget.steps]",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    sweep = Sweep(tmp_path_factory.mktemp("referring"), *REFERRING)
    assert sweep.run() == (0, "")
    return sweep


def test_each_job_resolves_its_own_words_in_a_directory_named_after_them(swept: Sweep) -> None:
    configs = {name: read_run_config(swept.directory / name, "run") for name in swept.finished()}
    own = {name: (one["rl"]["horizon"], one["rl"]["minibatch"], one["record"]["name"]) for name, one in configs.items()}
    assert own == {"rl.horizon=4,seed=3": (4, 4, "run-3-0"), "rl.horizon=8,seed=3": (8, 8, "run-3-1")}


def test_the_same_words_finish_what_is_missing(swept: Sweep) -> None:
    lost, kept = (swept.directory / name / "result.json" for name in swept.finished())
    before = json.loads(lost.read_bytes())["fitness"], kept.stat().st_mtime_ns
    lost.unlink()
    assert swept.run() == (0, "")
    assert (json.loads(lost.read_bytes())["fitness"], kept.stat().st_mtime_ns) == before


def test_its_report_finds_the_jobs_by_their_names(swept: Sweep) -> None:
    found = {one.name for one in find_runs([swept.directory])}
    assert found == {*read_index(swept.directory)} == {*swept.finished()}
    assert {read_run(swept.directory / name).state for name in found} == {"finished"}


def planned(*folders: str) -> list[Planned]:
    return [Planned(number=number, words=[], folder=one) for number, one in enumerate(folders)]


@pytest.mark.parametrize(
    ("subdir", "folders", "line"),
    [
        (
            "${now:%S}-${hydra:job.num}",
            ["01-0", "01-1"],
            "has the time in it, so that a resume would not find the jobs",
        ),
        ("../${seed}", ["0", "../3"], "job 1 would not lie below the directory of the sweep but in ../3"),
        ("/tmp/${seed}", ["/tmp/3"], "job 0 would not lie below the directory of the sweep but in /tmp/3"),
        (".", ["."], "job 0 would not lie below the directory of the sweep but in ."),
        ("${seed}", ["3", "4", "3/"], "jobs 0 and 2 would both lie in 3"),
        ("${seed}", ["3/x/y", "3"], "job 0 would lie inside job 1, in 3/x/y"),
    ],
)
def test_directories_that_cannot_be_are_refused(subdir: str, folders: list[str], line: str, tmp_path: Path) -> None:
    base = OmegaConf.create({"hydra": {"sweep": {"subdir": subdir}}})
    with pytest.raises(BadRequest, match=re.escape(line)) as refused:
        _check_folders(base, tmp_path, planned(*folders))
    assert refused.value.key == "hydra.sweep.subdir"
    fine = OmegaConf.create({"hydra": {"sweep": {"subdir": "${x}"}}})
    _check_folders(fine, tmp_path, planned("3/x", "3/y"))


@pytest.mark.parametrize("sweep", [False, True])
def test_a_name_that_is_too_long_is_refused_before_torch_is_imported(
    sweep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def checked(*given: Any) -> Any:
        raise AssertionError("this imports torch")

    monkeypatch.setattr("evorl.jobs.job.checked_experiment", checked)
    key = "hydra.sweep.subdir" if sweep else "hydra.run.dir"
    words = ["--multirun", f"hydra.sweep.dir={tmp_path}", "seed=1,2"] if sweep else []
    check_names(Path("b", "a" * 255), "a folder", key)
    place = "'" + "\u00e9" * 128 + "'" if sweep else tmp_path / ("a" * 256)
    assert go(*words, "mdp=cartpole", f"{key}={place}") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"evorl: {key}: the name of ") and "takes 256 bytes, more than the 255 that fit" in said
    assert said.count("\n") == 1 and not [*tmp_path.iterdir()]


def test_the_jobs_of_a_search_resolve_their_own_words() -> None:
    words = ["mdp=cartpole", "hydra/sweeper=evorl", LR, "rl.entropy_coef=${rl.lr}", "record.name=x-${seed}"]
    with config.opened() as hydra:
        asked = read_search(config.compose(hydra, words, mode=RunMode.MULTIRUN), hydra)
        jobs = [config.resolved(config.compose(hydra, one)) for one in asked.extremes()]
    rates = [one["rl"]["lr"] for one in jobs]
    assert rates[:2] == pytest.approx([1e-4, 1e-2]) and [one["rl"]["entropy_coef"] for one in jobs] == rates
    assert parse([f"x={asked.identity()['words']['rl.entropy_coef']}"])[0].value() == "${rl.lr}"


def test_a_resume_resolves_the_words_that_may_change(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = (*QUICK, "mdp=cartpole", "seed=7", "budget.steps=64", "rl.slots=4", "rl.horizon=4", "rl.minibatch=16")
    assert go(*words, f"hydra.run.dir={run}") == 0
    assert go(f"resume={run}", "rl.slots=${seed}") == 2
    assert go(f"resume={run}", "record.name=run-${seed}", "budget.steps=80", "rl.horizon=${rl.slots}") == 0
    past = read_run_config(run, "run")
    assert (past["record"]["name"], past["budget"]["steps"]) == ("run-7", 80)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("seed=range(0,3),7", "seed: a range stands alone: write its values into the list, as in 0,1,2,7"),
        ("seed=7,range(0,3)", "seed: a range stands alone"),
        ("rl.lr=interval(0,1),3", "rl.lr: a range stands alone"),
        ("rl=ppo,glob(*)", "rl: a range stands alone"),
        ("seed=choice(1,choice(2,3))", "seed: a range stands alone"),
        ("rl.net.hidden=[range(0,3),7]", "rl.net.hidden: a range stands alone"),
        ("+mdp.x={a:range(0,3)}", "mdp.x: a range stands alone"),
        ("seed=range(0,3,0)", "seed: a range has an end and at most 1,000,000 values"),
        ("seed=range(0,inf)", "seed: a range has an end"),
        ("seed=range(3,nan)", "seed: a range has an end"),
        ("seed=range(0,1e99)", "seed: a range has an end"),
        ("seed=range(3,3)", "seed: has no value"),
        ("rl=glob(zz*)", "rl: has no value"),
    ],
)
@pytest.mark.parametrize("sweeper", ["basic", "evorl"])
def test_ranges_that_are_none_are_refused(
    word: str, line: str, sweeper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--multirun", "mdp=cartpole", f"hydra/sweeper={sweeper}", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert go(*words, word) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    if sweeper == "basic":
        assert said.startswith(f"evorl: {line}")
    assert not (tmp_path / "sweep").exists()


def test_ranges_and_lists_have_the_values_that_they_say() -> None:
    words = ("seed=range(0,3)", "seed=sort(3,1)", "rl.net.hidden=[8,8],[16]", "x=range(0.5,1.5,0.5)")
    values = [[*parse([word])[0].sweep_string_iterator()] for word in words]
    assert values == [["0", "1", "2"], ["1", "3"], ["[8,8]", "[16]"], ["0.5", "1.0"]]


@pytest.mark.parametrize(
    ("more", "key", "below"), [((), "hydra.run.dir", ""), (("--multirun",), "hydra.sweep.dir", "0")]
)
def test_a_new_run_in_a_locked_directory_names_its_key(
    more: tuple[str, ...], key: str, below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run" / below
    place.mkdir(parents=True)
    if more:
        write_index(tmp_path / "run", {})
    with lock(place):
        assert go(*more, "mdp=cartpole", *QUICK, "budget.steps=128", f"{key}={tmp_path / 'run'}") == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"evorl: {key}: another process is writing {place}"


def test_the_index_of_many_jobs_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for none above the size of other documents, and the next job wrote a new one in its place."""
    monkeypatch.setattr("evorl.util.run_directory.DOCUMENT", 1000)
    words = {str(number): [f"seed={number}", "mdp=cartpole"] for number in range(100)}
    write_index(tmp_path, words)
    write_index(tmp_path, {"100": ["seed=100"]})
    assert read_index(tmp_path) == {**words, "100": ["seed=100"]}
