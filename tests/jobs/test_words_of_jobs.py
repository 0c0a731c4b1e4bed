"""Words that refer to other keys: each job of a sweep or a search resolves its own, and a resume finds the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import QUICK, go
from hydra.types import RunMode
from omegaconf import OmegaConf
from sweeping import Sweep

from evorl.analysis.runs import find_runs, read_run
from evorl.analysis.sweeps import read_index
from evorl.cli import config
from evorl.cli.config import read_run_config
from evorl.cli.overrides import parse
from evorl.jobs.search import read_search
from evorl.jobs.sweep import Planned, _check_folders
from evorl.util.errors import BadRequest

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
    return [Planned(words=[], folder=one, composed=None, data={}, experiment=None) for one in folders]


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
        (
            "${x}",
            ["a" * 255, "b/" + "\u00e9" * 128],
            "the name of job 1's directory takes 256 bytes, more than the 255",
        ),
    ],
)
def test_directories_that_cannot_be_are_refused(subdir: str, folders: list[str], line: str) -> None:
    base = OmegaConf.create({"hydra": {"sweep": {"subdir": subdir}}})
    with pytest.raises(BadRequest, match=re.escape(line)) as refused:
        _check_folders(base, planned(*folders))
    assert refused.value.key == "hydra.sweep.subdir"
    _check_folders(OmegaConf.create({"hydra": {"sweep": {"subdir": "${x}"}}}), planned("3/x", "3/y", "a" * 255))


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
