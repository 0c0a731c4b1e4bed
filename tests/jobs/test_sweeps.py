"""Sweeps that are run again into the same directory, with Hydra's own launcher and with Ray's."""

from __future__ import annotations

import csv
import gc
import json
import shlex
import shutil
import signal
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, ROOT, fingerprint, go, start
from hydra.types import RunMode
from sweeping import Sweep, trained_once

from evorl.analysis import sweeps
from evorl.cli.config import experiment_of_run
from evorl.cli.hydra_internals import open_composer
from evorl.cli.refusals import check_hydra_of_job
from evorl.cluster.ray import Ray
from evorl.jobs import launchers, planning
from evorl.jobs.sweep import _interruptible, _show
from evorl.record import checkpoint
from evorl.record.lock import lock
from evorl.util import command
from evorl.util.errors import BadRequest

SOUP = "RuntimeError: the soup was off"
WORDS = ("+mdp.poisonous=[2]", "budget.steps=1500", "mdp.dose=1,2", "seed=1,2")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, str]:
    """Four jobs, of which 2 and 3 failed, and what was said of them."""
    sweep = Sweep(tmp_path_factory.mktemp("ended"), *WORDS)
    sweep.poison.touch()
    code, said = sweep.run()
    assert (code, sweep.finished(), sweep.reasons()) == (1, ["0", "1"], {"2": SOUP, "3": SOUP}), said
    return sweep, said


def state_of(sweep: Sweep) -> dict[str, int]:
    return state(sweep.directory)


def state(place: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in place.rglob("*")}


@pytest.mark.parametrize("searches", [(), ("hydra/sweeper=evorl", "hydra.sweeper.jobs=2", "rl.lr=interval(1e-4,1e-3)")])
def test_a_stop_at_the_end_of_a_job_begins_no_other(
    searches: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save

    def stopped_at_the_last(directory: Path, step: int, *others: Any, **named: Any) -> Path:
        if step >= 256:
            signal.raise_signal(signal.SIGTERM)
        return save(directory, step, *others, **named)

    monkeypatch.setattr(checkpoint, "save", stopped_at_the_last)
    words = ("--multirun", "mdp=cartpole", *QUICK, "budget.steps=256", *(searches or ("seed=1,2",)))
    with pytest.raises(SystemExit, match="143"):
        go(*words, f"hydra.sweep.dir={tmp_path}")
    assert [path.parent.name for path in tmp_path.glob("*/result.json")] == ["0"]
    assert not (tmp_path / "1").exists() and not (tmp_path / "0" / "failure.json").exists()


@pytest.fixture
def ended(first: tuple[Sweep, str]) -> Sweep:
    return first[0]


def test_failed_jobs_end_no_other_and_are_told_with_their_reasons(first: tuple[Sweep, str]) -> None:
    ended, said = first
    assert said.splitlines()[-3:] == [
        f"evorl: 2 of 4 jobs failed; with hydra.sweep.dir={ended.directory} they run again",
        f"  2 mdp.dose=2 seed=1: {SOUP}",
        f"  3 mdp.dose=2 seed=2: {SOUP}",
    ]
    trace = json.loads((ended.directory / "2" / "failure.json").read_bytes())["traceback"]
    assert "sweeping.py" in trace and SOUP in trace
    assert {name: words[-2:] for name, words in sweeps.read_index(ended.directory).items()} == {
        str(n): [f"mdp.dose={dose}", f"seed={seed}"]
        for n, (dose, seed) in enumerate([(1, 1), (1, 2), (2, 1), (2, 2)])
    }  # fmt: skip


@pytest.mark.slow_cases(
    "record.project=x-evorl: record.project: job 0 was begun with evorl in {0}/0, and is x now\\n",
    "budget.steps=4000-evorl: budget.steps: job 0 was begun with 1500 in {0}/0, and is 4000 now\\n",
)
@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("seed=1,3", "evorl: seed: job 1 was begun with 2 in {0}/1, and is 3 now\n"),
        ("rl.lr=0.1", "evorl: rl.lr: job 0 was begun with 0.0003 in {0}/0, and is 0.1 now\n"),
        ("budget.steps=4000", "evorl: budget.steps: job 0 was begun with 1500 in {0}/0, and is 4000 now\n"),
        ("record.project=x", "evorl: record.project: job 0 was begun with evorl in {0}/0, and is x now\n"),
        ("hydra.sweep.subdir=a", "evorl: hydra.sweep.subdir: jobs 0 and 1 would both lie in a\n"),
    ],
)
def test_a_job_of_another_config_is_refused(ended: Sweep, word: str, line: str) -> None:
    before = state_of(ended)
    assert ended.run(word) == (2, line.format(ended.directory))
    assert state_of(ended) == before


def test_resume_of_a_sweep_names_what_goes_on_with_it(ended: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    before, place = state_of(ended), ended.directory
    assert go(f"resume={place}") == 2
    said = f"{place} is a sweep: the command that began it goes on with it, and hydra.sweep.dir={place}"
    assert capsys.readouterr().err == f"evorl: resume: {said}\n"
    assert state_of(ended) == before


def test_one_of_two_has_the_sweep(ended: Sweep) -> None:
    before = state_of(ended)
    with lock(ended.directory):
        line = f"evorl: hydra.sweep.dir: another process is writing {ended.directory}\n"
        assert ended.run() == (2, line)
    assert state_of(ended) == before


def test_a_job_that_another_process_writes_is_told_at_the_key_of_the_sweep(
    ended: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evorl.jobs.sweep.PATIENCE_S", 0.1)
    place = ended.directory / "2"
    with lock(place):
        code, said = ended.run()
    assert code == 2 and f"evorl: hydra.sweep.dir: another process is writing {place}\n" in said


def test_what_is_printed_can_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In any directory: a shell takes the lines apart, and Hydra reads the words."""
    place = tmp_path / "m 9=x"
    sweep = Sweep(tmp_path, "+mdp.poisonous=[2]", "mdp.dose=1,2", "budget.steps=64", "eval.episodes=1")
    sweep.poison.touch()
    code, said = sweep.run(f"hydra.sweep.dir='{place}'")
    (failed,) = [line for line in said.splitlines() if " jobs failed; with " in line]
    again = shlex.split(failed.partition("; with ")[2])[0]
    (report,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("1 of 2 jobs have finished: ")
    ]
    *python, out = shlex.split(report.partition(": ")[2])
    assert (code, python, out) == (1, [*shlex.split(command.python()), "-m", "evorl.report"], str(place))
    with pytest.raises(SystemExit), _interruptible(place):
        raise SystemExit(130)
    assert shlex.split(capsys.readouterr().err.partition("finished: 1; with ")[2])[0] == again
    sweep.poison.unlink()
    assert sweep.run(again) == (0, "") and len([*place.glob("*/result.json")]) == 2
    assert go(f"resume={command.literal(str(place))}") == 2
    assert shlex.split(capsys.readouterr().err)[-1] == again


@pytest.mark.slow
def test_run_again_it_finishes_what_is_missing_and_only_that(ended: Sweep, tmp_path: Path) -> None:
    """One failed job was mended, one was interrupted, one was killed as it wrote its config, one is new."""
    sweep = Sweep(tmp_path, *WORDS)
    shutil.copytree(ended.directory, sweep.directory)
    for name in "02":  # the config holds where the poison would lie
        config = sweep.directory / name / ".hydra" / "config.yaml"
        config.write_text(config.read_text().replace(str(ended.poison), str(sweep.poison)))
    shutil.rmtree(sweep.directory / "1")
    (sweep.directory / "1" / ".hydra").mkdir(parents=True)
    shutil.rmtree(sweep.directory / "3")
    before = sweep.kept()
    assert sweep.finished() == ["0"]
    code, said = sweep.run()
    assert (code, said) == (0, "")
    assert sweep.finished() == ["0", "1", "2", "3"] and sweep.reasons() == {}
    assert before.items() <= sweep.kept().items()
    assert all(trained_once(sweep.directory / name) for name in "0123")
    assert json.loads((sweep.directory / "2" / "failure.1.json").read_bytes())["reason"] == SOUP
    assert fingerprint(sweep.directory / "1") == fingerprint(ended.directory / "1")


EXPERIMENTS = {
    "on processes": ("rl.members=2", "cluster=processes", "cluster.workers=2", "budget.steps=2000"),
    "an evolution": ("ec=openai_es", "ec.population=4", "ec.episodes=1", "budget.steps=500"),
    "asynchronous": ("rl.members=2", "cluster=processes", "rl.asynchronous=true", "budget.steps=2000"),
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", pytest.param("ray", marks=pytest.mark.fault)])
@pytest.mark.parametrize("what", EXPERIMENTS)
def test_a_sweep_over_any_experiment(what: str, launcher: str, tmp_path: Path, short_path: Path) -> None:
    words, place = (*QUICK, "mdp=cartpole", *EXPERIMENTS[what]), tmp_path / "sweep"
    sweep = ("--multirun", f"hydra/launcher={launcher}", *words, "seed=1,2", f"hydra.sweep.dir={place}")
    assert start(*sweep, cwd=tmp_path, RAY_TMPDIR=str(short_path)).wait(200) == 0, (tmp_path / "err").read_text()
    assert all((place / job / "result.json").exists() for job in "01")
    if what != "asynchronous":
        assert go(*words, "seed=2", f"hydra.run.dir={tmp_path / 'alone'}") == 0
        assert fingerprint(place / "1") == fingerprint(tmp_path / "alone")


@pytest.mark.slow
def test_each_job_is_a_run_of_wandb(tmp_path: Path) -> None:
    words = (*QUICK, "mdp=cartpole", "seed=1,2", "budget.steps=300", "record.wandb=offline", "record.group=the-twins")
    sweep = start("--multirun", *words, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert sweep.wait(200) == 0, (tmp_path / "err").read_text()

    def notes() -> list[list[Path]]:
        return [[*(tmp_path / "sweep" / job).glob("wandb/offline-run-*/*.wandb")] for job in "01"]

    late = time.monotonic() + 90  # on a busy machine W&B goes on in the background after the end of a run
    while not all(found and b"the-twins" in found[0].read_bytes() for found in notes()):
        assert time.monotonic() < late
        time.sleep(0.2)
    first, second = notes()
    assert len(first) == len(second) == 1 and first[0].name != second[0].name


def test_its_report_knows_every_job(ended: Sweep, tmp_path: Path) -> None:
    from evorl.report import main

    place = tmp_path / "sweep"
    shutil.copytree(ended.directory, place)
    (place / "0" / "result.json").unlink()
    shutil.rmtree(place / "1")
    out = tmp_path / "report"
    with lock(place / "3"):
        assert main([str(place), f"out={out}"]) == 0
    with (out / "runs.csv").open(newline="") as file:
        rows = {Path(row["run"]).name: row for row in csv.DictReader(file)}
    states = {name: (row["state"], row["reason"], row["mdp.dose"], row["seed"]) for name, row in rows.items()}
    assert states == {
        "0": ("interrupted", "", "1", "1"),
        "1": ("not begun", "", "1", "2"),
        "2": ("failed", SOUP, "2", "1"),
        "3": ("running", "", "2", "2"),
    }
    page = (out / "index.html").read_text()
    assert "not begun" in page and SOUP in page and "1 job to come" in page


def test_the_table_at_its_end_is_of_the_jobs_that_can_be_read(
    ended: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(ended.directory, tmp_path / "sweep"))
    (place / "0" / ".hydra" / "config.yaml").write_text("{")
    _show(place, [place / "0", place / "1", place / "2"])
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines() if line][1:] == ["run", "1", "2"]
    (line,) = said.err.splitlines()
    assert line.startswith(f"evorl: left out: {place / '0'} (")
    _show(place, [place / "0"])
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_keys_of_choices_that_vary_may_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """rl.batch is no key of rl=ppo, the default that Hydra composes the sweep with."""
    words = ("--multirun", "mdp=pendulum", "rl=td3,sac", "rl.batch=16", "rl.net.hidden=[8]", "budget.steps=32")
    words = (*words, "eval.every=0", "eval.episodes=1", "record.tensorboard=false")
    assert go(*words, f"hydra.sweep.dir={tmp_path / 'sweep'}") == 0
    assert [experiment_of_run(tmp_path / "sweep" / str(n)).rl.batch for n in range(2)] == [16, 16]
    capsys.readouterr()
    assert go(*words, "rl.bach=16", f"hydra.sweep.dir={tmp_path / 'wrong'}") == 2
    assert "rl.bach: unknown key" in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


def test_an_unknown_evolver_of_a_search_is_told_at_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--multirun", "mdp=cartpole", "hydra/sweeper=evorl", "rl.lr=interval(1e-5,1e-2)")
    for name, nearest in (("cma", "did you mean cma_es?"), ("none", "there are: ")):
        assert go(*words, f"hydra.sweeper.evolver={name}") == 2
        assert f"evorl: hydra.sweeper.evolver: no evolver {name}; {nearest}" in capsys.readouterr().err


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert go("--multirun", "+debug=tiny", "mdp=cartpole", "seed=1,2", f"hydra.sweep.dir={tmp_path}") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("mode", [[], ["--multirun"]])
def test_no_config_file_trusts_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: list[str]) -> None:
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nhydra: {overrides: {task: ['trust=[evil_mod]']}}\nmdp: {_target_: evil_mod.World}\n"
    (tmp_path / "experiment" / "nice.yaml").write_text(text)
    assert go(*mode, "--config-dir", str(tmp_path), "mdp=cartpole", "+experiment=nice") == 2
    line = "evorl: hydra.overrides: has the words of the command line; no config file gives any\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    "words, link",
    [
        (("seed=1,2", "hydra.sweep.subdir=./${hydra:job.num}"), "1"),
        (("seed=1,2", "hydra.sweep.subdir=a/${hydra:job.num}"), "a"),
        (("hydra/sweeper=evorl", "rl.lr=tag(log,interval(1e-4,1e-2))"), "3"),
    ],
)
def test_no_link_in_a_sweep_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], link: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    sweeps.write_index(sweep, {})
    (sweep / link).symlink_to(tmp_path / "elsewhere")
    before = state(sweep)
    assert go("--multirun", "mdp=cartpole", *QUICK, "budget.steps=64", *words, f"hydra.sweep.dir={sweep}") == 2
    line = f"evorl: hydra.sweep.dir: {sweep / link} is a link, and none in a sweep is followed\n"
    assert capsys.readouterr().err == line
    assert before == state(sweep) and not [*(tmp_path / "elsewhere").iterdir()]


def test_a_key_of_hydra_that_launchers_follow_is_refused_in_a_file_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hydra would write .hydra/ first, so that a fresh job would count as begun."""
    (tmp_path / "mine.yaml").write_text("defaults: [config, _self_]\nhydra: {output_subdir: .hydra}\n")
    words = ("mdp=cartpole", "seed=1,2", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert go("--multirun", "--config-dir", str(tmp_path), "-cn", "mine", *words) == 2
    assert capsys.readouterr().err == "evorl: hydra.output_subdir: evorl writes .hydra/ itself; leave it out\n"
    assert not (tmp_path / "sweep").exists()


LOG = "hydra: {%s: {version: 1, handlers: {x: {(): evil_mod.run}}, root: {handlers: [x]}}}"
EVIL = "{_target_: evil_mod.run}"


@pytest.mark.parametrize(
    "text, word, line",
    [
        *((LOG % kind, word, f"hydra.{kind}: can run code, and evorl keeps no log of Hydra's; leave it out")
          for kind in ("hydra_logging", "job_logging") for word in ("nice", "nice,plain", "plain,nice")),
        *((f"defaults: [override /hydra/launcher: ray]\nhydra: {{launcher: {{ray: {{{name}: {{runtime_env: {{env_vars: "
           "{PATH: .}}}}}}", "nice", f"hydra.launcher.ray.{name}.runtime_env: is taken from the command line only")
          for name in ("init", "remote")),
        ("hydra: {job: {env_set: {PATH: .}}}", "nice", "hydra.job.env_set.PATH: is taken from the command line only"),
        *((f"defaults: [override /hydra/{part}: '{number}']", "nice",
           f"hydra.{part}.more{at}._target_: Hydra would run evil_mod.run; "
           "to allow it add 'trust=[evil_mod]' to the command line")
          for part in ("launcher", "sweeper") for number, at in enumerate(("", "[0]", ""))),
    ],
)  # fmt: skip
def test_hydra_runs_no_code_of_a_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, word: str, line: str
) -> None:
    """Hydra makes what is inside a launcher or sweeper as well, and `logging` calls what a config of it names."""
    files = {"experiment/nice": f"{text}\nreward: {{weights: {EVIL}}}", "experiment/plain": "seed: 3"}
    for part in ("launcher", "sweeper"):
        target = f"_target_: hydra._internal.core_plugins.basic_{part}.Basic{part.title()}"
        for number, more in enumerate((EVIL, f"[{EVIL}]", "${reward.weights}")):
            files[f"hydra/{part}/{number}"] = f"{target}\nmore: {more}"
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        package = "# @package _global_\n" if "experiment" in name else ""
        (tmp_path / f"{name}.yaml").write_text(package + content)
    (tmp_path / "evil_mod.py").write_text("def run(*a, **k): open('ran', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("mdp=cartpole", *QUICK, "budget.steps=64", f"+experiment={word}", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert go("--multirun", "--config-dir", str(tmp_path), *words) == 2
    assert capsys.readouterr().err == f"evorl: {line}\n"
    assert not (tmp_path / "sweep").exists() and not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "word",
    [
        "hydra/hydra_logging=disabled",
        "hydra/job_logging=stdout",
        "+hydra.job.env_set.X=1",
        "+hydra.job.env_set={X:1,Y:2}",
    ],
)
def test_hydras_own_logs_and_words_of_the_environment_are_allowed(word: str) -> None:
    with open_composer(ROOT / "conf") as hydra:
        check_hydra_of_job(hydra.compose_config("config", ["mdp=cartpole", word], RunMode.MULTIRUN))


@pytest.mark.parametrize(
    "word", ["init.log_to_driver=false", "init.runtime_env={env_vars:{X:a}}", "remote.runtime_env.pip=[x]"]
)
def test_words_give_rays_launcher_other_keys(word: str) -> None:
    words = ["mdp=cartpole", "hydra/launcher=ray", f"+hydra.launcher.ray.{word}"]
    with open_composer(ROOT / "conf") as hydra:
        launchers.check(hydra.compose_config("config", words, RunMode.MULTIRUN))


def test_jobs_are_checked_without_their_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A Ray for each would cost seconds, and the machines that jobs go to may not be there yet."""
    monkeypatch.setattr(Ray, "spawn", lambda *given: pytest.fail("a cluster was asked"))
    words = ("mdp=gymnasium", "mdp.id=CartPole-v1,Nothing-v0", "cluster=ray", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert go("--multirun", *words) == 2
    assert "Nothing" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_without_rays_launcher(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("evorl.jobs.launchers.find_spec", lambda name: None)
    assert go("--multirun", "hydra/launcher=ray", "seed=1,2") == 2
    line = "evorl: hydra/launcher: ray needs a package more: pip install 'evorl-suite[ray-launcher]'\n"
    assert capsys.readouterr().err == line


def test_a_ray_that_is_not_there_is_said_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("mdp=cartpole", "seed=1,2", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert go("--multirun", "hydra/launcher=ray", "hydra.launcher.ray.init.address='127.0.0.1:1'", *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("evorl: hydra.launcher.ray.init: Ray at 127.0.0.1:1 cannot be joined: ")
    assert not (tmp_path / "sweep").exists()


@pytest.mark.fault
def test_on_ray_jobs_have_the_same_bits_and_fail_alone(ended: Sweep, tmp_path: Path, short_path: Path) -> None:
    sweep = Sweep(tmp_path, *WORDS, "seed=1", launcher="ray")
    sweep.env["RAY_TMPDIR"] = str(short_path)
    (short_path / "ray").mkdir()
    (short_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")  # another's, which is not to be joined
    sweep.poison.touch()
    assert sweep.start().wait(120) == 1
    said = (tmp_path / "err").read_text()
    assert (sweep.finished(), sweep.reasons()) == (["0"], {"1": SOUP}), said
    assert f"  1 mdp.dose=2: {SOUP}" in said.splitlines()
    assert fingerprint(sweep.directory / "0") == fingerprint(ended.directory / "0")
    kept = sweep.kept()
    sweep.poison.unlink()
    assert sweep.run("hydra/launcher=basic") == (0, "")  # where a job runs is no part of it
    assert sweep.finished() == ["0", "1"] and kept.items() <= sweep.kept().items()


@pytest.mark.parametrize("again", [False, True])
def test_no_config_of_a_job_is_kept_while_jobs_run(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config takes 150 kB, and a grid has thousands of jobs."""
    words = ("--multirun", "mdp=cartpole", "rl.lr=1e-3,2e-3", "seed=1,2,3", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    if again:  # with jobs whose configs are compared
        assert go(*words, *QUICK, "budget.steps=64", "eval.every=0") == 0
    composed_by, made, alive = planning._composed, [], []

    def noted(*given: Any) -> planning.Composed:
        composed = composed_by(*given)
        made.extend(map(weakref.ref, (composed.config, composed.experiment)))
        return composed

    def begin(base: Any) -> None:
        gc.collect()
        alive.extend(one for one in made if one() is not None)
        raise BadRequest("enough")

    monkeypatch.setattr(planning, "_composed", noted)
    monkeypatch.setattr(launchers, "start_ray", begin)
    assert go(*words, *QUICK, "budget.steps=64", "eval.every=0") == 2
    assert len(made) == 2 * (6 + (6 if again else 2)) and not alive
