"""The commands as a person types them: each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import runpy
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest

from evorl import __main__
from evorl.cli import config

FEW = ("+debug=tiny", "mdp=cartpole", "record.tensorboard=false")
TINY = (*FEW, "budget.steps=512")


def evorl(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return forked.evorl("run", *words, cwd=cwd)


def started(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``python -m evorl.run WORDS``, from the interpreter's start on."""
    command = [sys.executable, "-m", "evorl.run", *words]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True)


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated environment
    return {**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}


def nothing_written(place: Path) -> bool:
    return not [*place.iterdir()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    done = started(*FEW, cwd=place)
    assert done.returncode == 0, done.stderr
    return next(place.glob("runs/*/*"))


def test_a_run(finished: Path) -> None:
    assert finished.parent.name == "cartpole-ppo-none" and finished.name.endswith("-s0")
    assert {path.name for path in (finished / ".hydra").iterdir()} == {"config.yaml", "hydra.yaml", "overrides.yaml"}
    result = json.loads((finished / "result.json").read_text())
    assert result["steps"] >= 4096 and result["eval"]["episodes"] == 2
    assert json.loads((finished / "provenance.json").read_text())["seed"] == 0


WRONG = [
    (["rl.lrr=1"], "evorl: rl.lrr: unknown key; did you mean rl.lr?"),
    (["mdp=gymnasium", "mdp.id=CartPole-v11"], "evorl: mdp.id: "),
    (["--multirun", "seed=1,x"], "evorl: seed: expected int, got 'x'"),
    (["--multirun", "+hydra.callbacks.mine._target_=os.getcwd"], "evorl: hydra.callbacks: are code"),
    (["--multirn"], "evorl: --multirn: unknown option; did you mean --multirun?"),
    (["--config-dir", "nowhere"], "evorl: --config-dir: there is no folder nowhere"),
    (["-cn", "confog"], "evorl: "),
    (["resume=nowhere"], "evorl: resume: nowhere: no such run directory\n"),
    (["hydra.run.dir=/proc/nowhere", *TINY], "evorl: hydra.run.dir: cannot make /proc/nowhere"),
]
WRONG_TOO = [
    (["learning_rate=1"], "evorl: learning_rate: unknown key; in evorl this is rl.lr=1"),
    (
        ["ec.population=3"],
        "evorl: ec.population: unknown key of ec=none; it belongs to ec=acem_rl, ec=aes_rl, "
        "ec=asha, ec=cem and 19 more\n",
    ),
    (["rl=ppoo"], "evorl: rl: no choice 'ppoo'; did you mean ppo?"),
    (
        ["rl.lr=x"],
        "evorl: rl.lr: expected float or a mapping with the keys start, end, steps, kind, power, got 'x'",
    ),
    (["--multirun", "rl.lr=interval(1e-4,1e-3)"], "evorl: rl.lr: an interval needs a sweeper that searches"),
    (["--seed", "3"], "evorl: --seed: unknown option; keys have no dashes: seed=3\n"),
    (
        ["resume=a,b"],
        "evorl: resume: several values; a list is written 'resume=[a,b]', and a text with commas 'resume=",
    ),
    (["init=nowhere"], "evorl: init: nowhere: no such run directory\n"),
    (["replay=nowhere"], "evorl: replay: nowhere: no such run directory\n"),
    (["mdp=cartpole", "mdp=pong"], "evorl: mdp: is given twice, as cartpole and as pong; leave one out\n"),
    (["--multirun", "rl=ppo,a2c", "rl=td3"], "evorl: rl: is given twice, as ppo,a2c and as td3; leave one out\n"),
    (["init=one", "init=other"], "evorl: init: is given twice, as one and as other; leave one out\n"),
    (["cartpole", "ppo"], "evorl: cannot read 'cartpole'; did you mean mdp=cartpole?\n"),
    (["mdp=cartpole", "ppoo"], "evorl: cannot read 'ppoo'; did you mean rl=ppo?\n"),
    (["CartPole-v1"], "evorl: cannot read 'CartPole-v1'; did you mean mdp=cartpole?\n"),
    (["ape_x"], "evorl: cannot read 'ape_x'; did you mean +experiment=ape_x?\n"),
    (["policy.yaml"], "evorl: cannot read 'policy.yaml'; expected KEY=VALUE, quoted if it has special signs\n"),
    (["mdp=cartpole", "rl.clip=-3"], "evorl: rl.clip: "),
    (["mdp=cartpole", "rl=td3"], "evorl: mdp: this learner needs a Box action with finite bounds, "),
    (["--multirun", "mdp=cartpole", "rl.clip=-3,-4"], "evorl: rl.clip: "),
    (["rl.learning_rate=1"], "evorl: rl.learning_rate: unknown key; did you mean rl.lr?"),
    (["rl.discount=1"], "evorl: rl.discount: unknown key; did you mean rl.gamma?"),
    (["discount=1"], "evorl: discount: unknown key; did you mean rl.gamma?"),
    (["run_dir=x"], "evorl: run_dir: unknown key; did you mean hydra.run.dir?"),
    (["output_dir=x"], "evorl: output_dir: unknown key; did you mean hydra.run.dir?"),
    (["rl.zzz=1"], "evorl: rl.zzz: unknown key; there are: members, slots, "),
    (["cluster.cpus=2"], "evorl: cluster.cpus: unknown key of cluster=local; it belongs to cluster=ray\n"),
    (
        ["mdp=pong", "mdp.vector=x"],
        "evorl: mdp.vector: unknown key of mdp=pong; it belongs to mdp=acrobot, mdp=ant, ",
    ),
    (["rl=a2c", "rl.clip=0.1"], "evorl: rl.clip: unknown key of rl=a2c; it belongs to rl=impact, rl=ppo\n"),
    (["ec.shiny=3"], "evorl: ec.shiny: unknown key; this ec has none, another may: --help lists them"),
    (
        ["ec.populatoin=3"],
        "evorl: ec.populatoin: unknown key of ec=none; did you mean ec.population of ec=acem_rl, ec=aes_rl, ",
    ),
    (
        ["cluster.worker=2"],
        "evorl: cluster.worker: unknown key of cluster=local; did you mean cluster.workers of cluster=processes, "
        "cluster=ray?\n",
    ),
    (["experiment=marvin/ours"], "evorl: experiment: choose with a plus: +experiment=NAME\n"),
    (["+experiment=foo"], "evorl: experiment: no choice 'foo'; there are: ape_x, "),
    (
        ["+experiment=marvin/orginal"],
        "evorl: experiment: no choice 'marvin/orginal'; did you mean marvin/original?\n",
    ),
    (["debug=tiny"], "evorl: debug: choose with a plus: +debug=NAME\n"),
    (["experimnt=foo"], "evorl: experimnt: unknown key; did you mean +experiment?\n"),
    (["rl.lr=[1]"], "evorl: rl.lr: expected a value like {start: "),
    (["~debug"], "evorl: debug: nothing is chosen, so there is nothing to leave out\n"),
    (["~seed"], "evorl: seed: every run has one\n"),
    (["seed=${rl.gama}"], "evorl: seed: Interpolation key 'rl.gama' not found\n"),
    (["hydra.run.dir=${mine}", *TINY], "evorl: hydra.run.dir: Interpolation key 'mine' not found\n"),
    (["seed=x"], "evorl: seed: expected int, got 'x'"),
    (
        ["seed=[1,2]"],
        "evorl: seed: expected int, got [1, 2]; to run each, --multirun seed=1,2, in Python evorl.sweep\n",
    ),
    (["+debug=tiny", "mdp=cartpole", "hydra.run.dir="], "evorl: hydra.run.dir: needs a directory\n"),
    (
        ["--multirun", "rl.lr=interval(1e-4,1e-3)", "seed=1"],
        "evorl: rl.lr: an interval needs a sweeper that searches: hydra/sweeper=evorl; ",
    ),
    (["rl.net.shared=no"], "evorl: rl.net.shared: expected bool, got 'no'; did you mean false?\n"),
    (["resume="], "evorl: resume: names no run; expected its directory, or latest\n"),
    (["init=''"], "evorl: init: names no run; expected its directory, or latest\n"),
    (["--multirun", "rl=glob(*)", "seed=x"], "evorl: seed: expected int, got 'x'"),
    (
        ["--multirun", "mdp.opponent=self", "~tuned", "rl.slots=4,3"],
        "evorl: rl.slots: opponent=self needs an even number of slots",
    ),
    (["--multirun", *TINY, "rl.gamma=0.9,{foo: 0.9}"], "evorl: rl.gamma.foo: unknown key; there are: reward"),
    (["--rl.lr=0.1"], "evorl: --rl.lr=0.1: unknown option; keys have no dashes: rl.lr=0.1\n"),
    (["--seed", "rl=ppo"], "evorl: --seed: unknown option; keys have no dashes: seed=VALUE\n"),
]
"""What is refused by the same means, which the tests of `evorl.cli` try in one process."""


@pytest.mark.parametrize(
    ("words", "line"), [*WRONG, *(pytest.param(*request, marks=pytest.mark.slow) for request in WRONG_TOO)]
)
def test_a_wrong_request(tmp_path: Path, words: list[str], line: str) -> None:
    done = evorl(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1, done.stderr
    assert nothing_written(tmp_path)


@pytest.mark.slow_cases("words1-steps: 7", "words2-output_subdir: null", "words4-Defaults List")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--cfg", "job"], "_target_: evorl.rl.ppo.PPO"),
        (["--cfg", "job", "--resolve", "-p", "budget", "budget.steps=7"], "steps: 7"),
        (["--cfg", "hydra"], "output_subdir: null"),
        (["--help"], "rl: a2c, a3c, ddpg, dqn, impact, ppo, r2d2, reinforce, sac, td3, vtrace"),
        (["--info", "defaults"], "Defaults List"),
    ],
)
def test_what_hydra_shows(tmp_path: Path, words: list[str], text: str) -> None:
    done = evorl(*words, cwd=tmp_path)
    assert done.returncode == 0 and text in done.stdout, done.stderr
    assert nothing_written(tmp_path)


def test_a_sweep(tmp_path: Path) -> None:
    done = evorl("--multirun", *TINY, "seed=1,2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (sweep,) = tmp_path.glob("multirun/*")
    seeds = [json.loads((sweep / job / "provenance.json").read_text())["seed"] for job in "01"]
    assert seeds == [1, 2]
    assert all((sweep / job / "result.json").is_file() for job in "01")
    assert [config.experiment_of_run(sweep / job).record.group for job in "01"] == [sweep.name] * 2
    table = done.stdout.partition(": runs\n")[2].splitlines()
    assert [line.split()[0] for line in table[:3]] == ["run", "0", "1"]


def test_two_jobs_in_one_directory_are_refused(tmp_path: Path) -> None:
    done = evorl("--multirun", *TINY, "seed=1,2", "hydra.sweep.dir=here", "hydra.sweep.subdir=same", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "evorl: hydra.sweep.subdir: jobs 0 and 1 would both lie in same\n"
    assert nothing_written(tmp_path)


def test_a_config_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    text = "# @package _global_\ndefaults: [{override /mdp: cartpole}]\nseed: 5\n"
    (tmp_path / "mine" / "experiment" / "five.yaml").write_text(text)
    done = evorl("--config-dir", "mine", "+experiment=five", "+debug=tiny", "hydra.run.dir=here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "here" / "provenance.json").read_text())["seed"] == 5
    again = evorl(*TINY, "hydra.run.dir=here", cwd=tmp_path)
    assert again.returncode == 2 and "here is not empty" in again.stderr


def test_resume_of_a_finished_run_tells_how_it_ended_and_how_to_go_on(finished: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    done = evorl(f"resume={finished}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()[1:]
    steps = json.loads((finished / "result.json").read_text())["steps"]
    assert table[0].split()[0] == "fitness" and any(f"{steps:,} in " in line for line in table)
    assert last == (
        f"finished; a larger budget goes on: python -m evorl.run resume={finished} budget.steps={2 * steps}"
    )
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    assert nothing_written(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (["budget.seconds=0.001"], [r"budget\.seconds=\d+"]),
        (["budget.fitness=0"], [r"budget\.fitness=null"]),
        (["budget.steps=1"], [r"budget\.steps=\d+"]),
        (["budget.fitness=0", "budget.steps=1"], [r"budget\.fitness=null", r"budget\.steps=\d+"]),
    ],
)
def test_the_words_that_go_on_raise_the_limits_that_were_met(
    limits: list[str], words: list[str], tmp_path: Path
) -> None:
    """As they are printed they train on, and nothing that was found is lost."""
    assert evorl(*TINY, "eval.every=1", "hydra.run.dir=run", *limits, cwd=tmp_path).returncode == 0
    first = json.loads((tmp_path / "run" / "result.json").read_text())
    last = evorl("resume=run", cwd=tmp_path).stdout.splitlines()[-1]
    said = last.partition(" resume=run ")[2].split()
    assert len(said) == len(words) and all(map(re.fullmatch, words, said)), last
    on = evorl("resume=run", *said, *([] if "budget.steps" in last else ["budget.steps=600"]), cwd=tmp_path)
    assert on.returncode == 0, on.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] > first["steps"]
    assert json.loads((tmp_path / "run" / f"result.{first['steps']}.json").read_text()) == first


def test_a_finished_run_prints_its_next_commands(tmp_path: Path) -> None:
    """For a run that begins and for one that goes on."""
    film, tables = next_commands(evorl(*TINY, "hydra.run.dir=my run", cwd=tmp_path).stdout)
    assert film == ["python", "-m", "evorl.evaluate", "run=my run", "video=true"]
    assert tables == ["python", "-m", "evorl.report", "my run"]
    assert next_commands(evorl("resume=my run", "budget.steps=600", cwd=tmp_path).stdout) == [film, tables]


@pytest.mark.slow
def test_the_next_commands_of_a_problem_and_of_a_package_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import gymnasium.envs.classic_control as c\nclass Pole(c.CartPoleEnv):\n    pass\n", encoding="utf-8"
    )
    words = ("mdp=problem", "ec=random", "ec.population=4", "budget.steps=8", "record.tensorboard=false")
    commands = next_commands(evorl(*words, "hydra.run.dir=run", cwd=tmp_path).stdout)
    assert commands[0][2:] == ["evorl.evaluate", "run=run"]
    words = (
        *(word for word in TINY if word != "mdp=cartpole"),
        "mdp=gymnasium",
        "mdp.id=mine:Pole",
        "mdp.time_limit=50",
        "trust=[mine]",
        "hydra.run.dir=own",
    )
    commands = next_commands(evorl(*words, cwd=tmp_path).stdout)
    assert commands[0][2:] == ["evorl.evaluate", "run=own", "video=true", "trust=[mine]"]


def next_commands(printed: str) -> list[list[str]]:
    first, second = printed.splitlines()[-2:]
    assert first.startswith("next: ") and second.startswith("      ")
    return [shlex.split(line[6:]) for line in (first, second)]


@pytest.mark.slow_cases(
    but=("words0-evorl: rl.clip: is 0.2 in that run", "words6-evorl: resume: goes on with one run")
)  # the others: tests/jobs/test_resume.py, in one process
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rl.clip=1"], "evorl: rl.clip: is 0.2 in that run"),
        (["mdp=pong"], "evorl: mdp: is cartpole in that run"),
        (["seed=1"], "evorl: seed: is 0 in that run"),
        (["rl.lrr=1"], "evorl: rl.lrr: unknown key; did you mean rl.lr?"),
        (["budget.stepps=1"], "evorl: budget.stepps: unknown key; did you mean budget.steps?"),
        (["budget.steps=x"], "evorl: budget.steps: expected int | null, got 'x'"),
        (["--multirun"], "evorl: resume: goes on with one run"),
        (["init=RUN_DIR"], "evorl: init: starts a new run, and resume goes on with an old one: give one of the two\n"),
    ],
)
def test_what_a_resume_refuses(finished: Path, tmp_path: Path, words: list[str], line: str) -> None:
    done = evorl(f"resume={finished}", *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(line) and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
def test_a_larger_budget_goes_on_from_where_it_was_moved_to(tmp_path: Path) -> None:
    assert evorl(*TINY, "hydra.run.dir=old", cwd=tmp_path).returncode == 0
    (tmp_path / "old").rename(tmp_path / "new")
    done = evorl("resume=new", "budget.steps=1024", "mdp=cartpole", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = [json.loads((tmp_path / "new" / name).read_text())["steps"] for name in ("result.512.json", "result.json")]
    assert steps == [512, 1024]
    again = evorl("resume=new", cwd=tmp_path)
    assert again.returncode == 0 and "1,024 in " in again.stdout  # the larger budget is the run's own now


def test_the_first_line_names_the_tuned_settings_that_apply(tmp_path: Path) -> None:
    done = evorl(*TINY, "tuned=pong_ppo", "rl.minibatch=64", "hydra.run.dir=/proc/nowhere", cwd=tmp_path)
    assert done.stdout.splitlines()[0].endswith("mdp=cartpole rl=ppo ec=none cluster=local tuned=pong_ppo seed=0")


@pytest.mark.slow  # warm starts have tests in one process
def test_a_new_run_from_an_old_policy(finished: Path, tmp_path: Path) -> None:
    done = evorl(*TINY, f"init={finished}", "rl.lr=1e-4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len([*tmp_path.glob("runs/*/*/result.json")]) == 1


def test_a_policy_of_another_world_names_it(finished: Path, tmp_path: Path) -> None:
    done = evorl("+debug=tiny", "mdp=pong", f"init={finished}", cwd=tmp_path)
    line = f"evorl: init: {finished} is a run of cartpole, whose policy does not fit: add mdp=cartpole\n"
    assert (done.returncode, done.stderr) == (2, line)
    assert nothing_written(tmp_path)


@pytest.mark.slow_cases(but=("mdp=cartpole,pong",))
@pytest.mark.parametrize("word", ["mdp=cartpole,pong", "rl.net.hidden=[64,64],[32]"])
def test_a_policy_that_fits_one_job_only_is_refused_before_the_first(finished: Path, tmp_path: Path, word: str) -> None:
    others = [own for own in TINY if not (own.startswith("mdp=") and word.startswith("mdp="))]
    done = evorl("--multirun", *others, word, f"init={finished}", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("evorl: init: ") and "does not fit" in done.stderr and done.stderr.count("\n") == 1
    assert ("add mdp=cartpole" in done.stderr) == word.startswith("mdp")
    assert nothing_written(tmp_path)


@pytest.mark.slow
def test_the_command_with_a_door_as_its_first_word(tmp_path: Path) -> None:
    def main(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "evorl", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)

    assert main("run", "--cfg", "job").stdout == started("--cfg", "job", cwd=tmp_path).stdout
    assert main("--help").returncode == 0 and main("--version").returncode == 0
    assert main().returncode == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rn", "mdp=cartpole"], "evorl: no command 'rn'; did you mean run?\n"),
        (["evalute", "run=x"], "evorl: no command 'evalute'; did you mean evaluate?\n"),
        (["mdp=pong"], "evorl: no command 'mdp=pong'; there are: run, evaluate, report, "),
    ],
)
def test_an_unknown_command_is_told_in_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(words) == 2
    said = capsys.readouterr()
    assert said.err.startswith(line) and said.err.count("\n") == 1 and not said.out


@pytest.mark.parametrize("entry", ["run", "evaluate", "report", "export", "play", "reproduce", "zoo", "new"])
def test_every_module_starts_as_the_command_does(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each minds signals from the first moment on."""
    seen: list[list[str]] = []
    monkeypatch.setattr("evorl.__main__.main", lambda words: seen.append(words) or 7)
    monkeypatch.setattr(sys, "argv", ["x", "word"])
    monkeypatch.delitem(sys.modules, f"evorl.{entry}", raising=False)
    with pytest.raises(SystemExit) as left:
        runpy.run_module(f"evorl.{entry}", run_name="__main__")
    assert (seen, left.value.code) == ([[entry, "word"]], 7)


@pytest.mark.slow_cases("2-ignored", "15-default")
@pytest.mark.parametrize("inherited", ["-", "''"], ids=["default", "ignored"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts(tmp_path: Path, number: signal.Signals, inherited: str) -> None:
    """The first line is on the screen; torch is being imported. A script's background jobs ignore SIGINT at first."""
    command = ["sh", "-c", f'trap {inherited} INT TERM; exec "$0" -m evorl.run', sys.executable]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("evorl ")
        process.send_signal(number)
        assert process.wait() == 128 + number
        assert process.stderr.read() == f"evorl: ended by {number.name}\n"
    assert nothing_written(tmp_path)


def test_a_signal_ends_a_sweep(tmp_path: Path) -> None:
    """The job that trains saves itself; the next one does not begin."""
    words = ("--multirun", "mdp=cartpole", "seed=1,2", "hydra.sweep.dir=here", "budget.steps=1e9")
    told = {"cwd": tmp_path, "env": environment(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-m", "evorl.run", *words], **told) as process:
        assert process.stdout is not None and process.stderr is not None
        assert any("/s  " in line for line in process.stdout)  # it trains
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        last = process.stderr.read().splitlines()[-1]
        assert process.wait() == 130
    here = tmp_path / "here"
    assert last == f"evorl: jobs that have finished: 0; with hydra.sweep.dir={here} the same command goes on"
    assert (tmp_path / "here" / "0" / "checkpoints" / "latest").exists()
    assert not (tmp_path / "here" / "1").exists()


@pytest.mark.slow
def test_the_first_line_comes_within_two_seconds(tmp_path: Path) -> None:
    """On a machine with other work to do: the quickest of three."""

    def wait() -> float:
        started = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "evorl.run"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            seconds = time.monotonic() - started
            process.terminate()
        return seconds

    assert min(wait() for _ in range(3)) < 2


@pytest.mark.slow
def test_directories_of_runs_that_start_at_the_same_time(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, concurrent.futures as f\n"
        "from evorl.jobs.directories import new_directory\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "with f.ThreadPoolExecutor(8) as pool:\n"
        "    made = [pool.submit(new_directory, 'runs/a/20260101-s0', 'k', []) for _ in range(8)]\n"
        "    for one in made: print(one.result())\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [line for process in processes for line in process.communicate()[0].splitlines()]
    assert len(printed) == len({*printed}) == 64
    assert {path.name for path in (tmp_path / "runs" / "a").iterdir()} == {Path(line).name for line in printed}


HUNG_UP = {
    "head": '"$0" -m evorl.run "$@" | head -1',
    "nobody": '"$0" -m evorl.run "$@" 2>&1 | true',
    "closed": '"$0" -m evorl.run "$@" >&- 2>&- <&-',
    "full": '"$0" -m evorl.run "$@" >/dev/full 2>/dev/full',
}


@pytest.mark.slow
@pytest.mark.parametrize("command", HUNG_UP.values(), ids=HUNG_UP)
@pytest.mark.parametrize(
    "words", [(), pytest.param(("--multirun", "seed=1,2"), marks=pytest.mark.fault)], ids=["run", "sweep"]
)
def test_a_run_that_nobody_reads_goes_on_to_its_end(tmp_path: Path, command: str, words: tuple[str, ...]) -> None:
    words = (*words, *TINY, "hydra.sweep.dir=here" if words else "hydra.run.dir=here")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}", sys.executable, *words],
        cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    runs = [tmp_path / "here" / job for job in "01"] if "--multirun" in words else [tmp_path / "here"]
    for run in runs:
        assert json.loads((run / "result.json").read_text())["steps"] == 512
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert rows[-1]["step"] == 512 and "eval/return_mean" in rows[-1]
        assert (run / "checkpoints" / "latest").read_text() == "512\n"


def test_what_is_printed_is_in_a_pipe_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from evorl.util.streams import ignore_write_errors as tolerant; "
        "tolerant(); print('first'); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and select.select([process.stdout], [], [], 60)[0]
        assert process.stdout.readline() == b"first\n" and process.poll() is None
        process.communicate(b"go on\n")
    assert process.returncode == 0


def test_a_refusal_that_nobody_reads_has_its_exit_code(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$0" -m evorl.run rl=ppoo 2>&-', sys.executable]
    assert subprocess.run(command, cwd=tmp_path, env=environment()).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["evaluate", "report"])
def test_the_other_commands_end_quietly_too(finished: Path, tmp_path: Path, entry: str) -> None:
    word = f"run={finished}" if entry == "evaluate" else str(finished)
    command = f'set -o pipefail; "$0" -m evorl.{entry} "$1" | true'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, word], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("entry", ["run", "evaluate", "report", "export", "play", "reproduce", "zoo", "new"])
def test_a_python_without_what_evorl_needs_is_told_in_one_line(tmp_path: Path, entry: str) -> None:
    command = [sys.executable, "-S", "-m", f"evorl.{entry}", "mdp=pong"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f" is not installed for {sys.executable}; " in done.stderr
    assert "make setup" in done.stderr and "source .venv/bin/activate" in done.stderr


@pytest.mark.slow_cases(but=("torch",))
@pytest.mark.parametrize("module", ["torch", "numpy", "zmq"])
def test_a_package_that_is_missing_is_told_with_how_to_install_it(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError(name={module!r})")
    env = {**environment(), "PYTHONPATH": f"{tmp_path}:{Path(__file__).parent.parent}"}
    command = [sys.executable, "-m", "evorl.run", *TINY, "cluster=processes", "rl.members=2"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    line = f"evorl: {module} is not installed for {sys.executable}; python -m pip install evorl-suite\n"
    assert (done.returncode, done.stderr) == (2, line)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("entry", ["evaluate", "report"])
def test_evaluate_and_report_without_words_show_their_usage(tmp_path: Path, entry: str) -> None:
    command = [sys.executable, "-m", f"evorl.{entry}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"evorl: no run directory given; usage: python -m evorl.{entry} ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["mdp=gymnasium", "mdp.id=Acrobot-v1"], "mdp=gymnasium rl=ppo ec=none cluster=local mdp.id=Acrobot-v1 seed=0"),
        (["mdp=cartpole"], "tuned=cartpole_ppo seed=0"),
    ],
)
def test_the_first_line_names_the_world(tmp_path: Path, words: list[str], named: str) -> None:
    done = evorl(*words, "hydra.run.dir=/proc/nowhere", cwd=tmp_path)  # refused, but only after the first line
    assert done.returncode == 2 and done.stdout.endswith(f"{named}\n"), done.stdout


def test_help_lists_what_begins_from_other_runs(tmp_path: Path) -> None:
    shown = [line.split(" ")[0] for line in evorl("--help", cwd=tmp_path).stdout.splitlines()]
    assert {"init", "replay", "resume"} <= {*shown}
