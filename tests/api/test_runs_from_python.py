"""``import evorl``: runs, sweeps and run directories from Python, with the words of the command line."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch

import evorl
from evorl.analysis import sweeps
from evorl.api import experiments, runs
from evorl.jobs import job, sweep
from evorl.mdp.gymnasium.world import Gymnasium
from evorl.mdp.remote.world import Remote
from evorl.record.lock import lock
from evorl.rl.ppo import PPO
from evorl.training.experiment import Budget, Checkpoints, Evaluation, Experiment
from evorl.training.train import Run
from evorl.util.errors import BadRequest

SMALL: dict[str, Any] = {
    "budget.steps": 256, "rl.slots": 4, "rl.horizon": 16, "rl.minibatch": 32, "eval.every": 0, "eval.episodes": 2,
    "record.tensorboard": False,
}  # fmt: skip

TINY = {"budget.steps": 32, "eval.every": 0, "eval.episodes": 1, "record.tensorboard": False}

CARTPOLE = Gymnasium(id="CartPole-v1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(place: Path) -> evorl.RunResult:
    before = os.getcwd()
    os.chdir(place)
    try:
        return evorl.run("mdp=cartpole rl=ppo", SMALL, seed=3)
    finally:
        os.chdir(before)


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def test_a_run_and_what_is_read_of_it(trained: evorl.RunResult) -> None:
    assert trained.state == "finished" and trained.config["seed"] == 3
    assert trained.evaluate()["fitness"] == trained.fitness
    assert trained.metrics.index[-1] == 256 and trained.metrics["eval/return_mean"].iloc[-1] == trained.fitness
    assert trained.population.empty
    assert trained.policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert [axes.get_title(loc="left") or axes.get_title() for axes in trained.plot("train/return").axes]
    assert "finished" in repr(trained)


def test_a_run_is_loaded_by_its_directory_or_as_the_latest(trained: evorl.RunResult) -> None:
    seen = [0.1, 0.2, 0.3, 0.4]
    for directory in (trained.directory, str(trained.directory), "latest"):
        loaded = evorl.load(directory)
        assert loaded.policy.act(seen) == trained.policy.act(seen)
    for checkpoint in (256, np.int64(256), "last", "latest"):
        assert evorl.load(trained.directory, checkpoint=checkpoint).policy.act(seen) == trained.policy.act(seen)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"checkpoint": "bset"}, r"^checkpoint: 'bset' is none of latest, last, best, 192, 256; did you mean best\?$"),
        ({"checkpoint": 255}, r"^checkpoint: '255' is none of latest, last, best, 192, 256; did you mean 256\?$"),
        ({"individual": "best"}, "^individual: this run has no population$"),
    ],
)
def test_loading_refuses_a_policy_that_the_run_does_not_have(keys: Any, why: str, trained: evorl.RunResult) -> None:
    """And not the first use of the policy."""
    with pytest.raises(BadRequest, match=why):
        evorl.load(trained.directory, **keys)


def test_what_is_read_of_a_run_follows_its_files(trained: evorl.RunResult, tmp_path: Path) -> None:
    shutil.copytree(trained.directory, tmp_path / "run")
    run = evorl.load(tmp_path / "run")
    assert (run.state, run.fitness, run.population.empty) == ("finished", trained.fitness, True)
    assert run.metrics is run.metrics, "it is read once while nothing changes"
    (tmp_path / "run/result.json").rename(tmp_path / "result.json")
    with lock(tmp_path / "run"):
        assert (run.state, run.result) == ("running", None)
    assert run.state == "interrupted"
    with (tmp_path / "run/metrics.jsonl").open("a") as file:
        file.write('{"step": 512, "time": 9.0, "eval/return_mean": 1.5}\n')
    assert run.metrics["eval/return_mean"].iloc[-1] == run.record.last("eval/return_mean") == 1.5
    (tmp_path / "run/population.jsonl").write_text('{"id": 3}\n')
    assert run.population["id"].tolist() == [3]
    (tmp_path / "run/failure.json").write_text('{"reason": "no power"}')
    assert (run.state, run.record.reason) == ("failed", "no power")


def test_what_computes_leaves_the_process_its_threads(
    trained: evorl.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = torch.get_num_threads(), list[int]()
    wanted = before + 1
    monkeypatch.setattr(runs, "work", lambda parser, args: torch.set_num_threads(wanted) or trained.directory)
    assert evorl.run("mdp=cartpole").directory == trained.directory and torch.get_num_threads() == before
    run = evorl.load(trained.directory)
    object.__setattr__(run.experiment.rl, "threads", wanted)
    play = run.policy.learner.play
    monkeypatch.setattr(run.policy.learner, "play", lambda *x: seen.append(torch.get_num_threads()) or play(*x))
    policy = evorl.Policy(run.policy.learner, run.experiment.mdp, threads=run.policy.threads)
    policy.act([0.0, 0.0, 0.0, 0.0])
    assert seen == [wanted] and torch.get_num_threads() == before
    policy.evaluate(episodes=1)
    run.evaluate(episodes=1)
    assert {*seen} == {wanted} and torch.get_num_threads() == before


def test_a_policy_plays_as_long_as_its_run_evaluates(trained: evorl.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a world without a limit of its own."""
    run = evorl.load(trained.directory)
    monkeypatch.setattr(Gymnasium, "longest_episode", property(lambda world: None))
    object.__setattr__(run.experiment.eval, "max_steps", 7)
    assert {episode.length for episode in run.policy.evaluate(episodes=3)} == {7}


@pytest.mark.parametrize(("key", "number"), [("episodes", 0), ("episodes", -1), ("seed", -1)])
def test_an_evaluation_refuses_the_numbers_that_the_command_refuses(
    key: str, number: int, trained: evorl.RunResult
) -> None:
    with pytest.raises(BadRequest, match=rf"^{key}: expected int >= \d, got {number}$"):
        trained.evaluate(**{key: number})
    assert trained.evaluate(seed=0) != trained.evaluate()


def test_a_run_is_closed_with_what_its_world_holds(trained: evorl.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Any]()
    monkeypatch.setattr(Gymnasium, "close", lambda world: closed.append(world))
    with evorl.load(trained.directory) as run:
        world, action = run.experiment.mdp, run.policy.act([0.1, 0.2, 0.3, 0.4])
        assert not closed
    assert len(closed) == 1 and closed[0] is world
    run.close()
    assert len(closed) == 1, "it has opened nothing since"
    assert run.policy.act([0.1, 0.2, 0.3, 0.4]) == action, "and can be used again"


def test_a_run_without_metrics_has_no_plot(trained: evorl.RunResult, tmp_path: Path) -> None:
    shutil.copytree(trained.directory, tmp_path / "run")
    (tmp_path / "run/metrics.jsonl").write_text("")
    for metrics in ((), ("train/return",)):
        with pytest.raises(BadRequest, match=r"/run has recorded no metrics$"):
            evorl.load(tmp_path / "run").plot(*metrics)
    (tmp_path / "run/metrics.jsonl").write_text('{"step": 1, "time": 1.0, "policy/entropy": 0.5}\n')
    with pytest.raises(BadRequest, match=r"has recorded none of eval/fitness_mean, .*; name others"):
        evorl.load(tmp_path / "run").plot()
    assert evorl.load(tmp_path / "run").plot("policy/entropy").axes


def test_a_run_goes_on(place: Path) -> None:
    first = evorl.run({"mdp": "cartpole", **SMALL}, seed=4)
    longer = evorl.resume(first.directory, {"budget.steps": 512})
    for run in (longer, first):
        assert run.directory == first.directory and run.result is not None and run.result["steps"] == 512
        assert run.config["budget"]["steps"] == run.metrics.index[-1] == 512


def test_a_sweep_returns_its_runs_those_that_failed_as_well() -> None:
    made = evorl.sweep("mdp=cartpole", SMALL | {"rl.gamma": np.array([0.9, 0.99])})
    assert [run.config["rl"]["gamma"] for run in made] == [0.9, 0.99]
    assert [run.state for run in made] == ["finished"] * 2


def test_an_experiment_of_dataclasses_is_a_run_like_any_other() -> None:
    made = evorl.experiment(
        Gymnasium(id="CartPole-v1"), PPO(slots=4, horizon=16, minibatch=32), budget=Budget(steps=128),
        eval=Evaluation(every=0, episodes=2), checkpoint=Checkpoints(every=0), seed=np.int64(5),
    )  # fmt: skip
    run = evorl.run(made)
    assert run.experiment == made
    assert evorl.resume(run.directory, {"budget.steps": 256}).state == "finished"


def test_numbers_of_an_experiment_may_be_those_of_numpy() -> None:
    hyper = PPO(lr=np.float64(1e-3), slots=np.int64(4), gamma={"a": np.float32(0.5)})
    made = evorl.experiment(CARTPOLE, hyper, seed=np.uint8(5), budget=Budget(steps=1e6))
    assert made == Experiment(
        mdp=CARTPOLE, rl=PPO(lr=1e-3, slots=4, gamma={"a": 0.5}), seed=5, budget=Budget(steps=1_000_000)
    )
    assert [type(x) for x in (made.rl.lr, made.rl.slots, made.seed, made.budget.steps)] == [float, int, int, int]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"mdp": "pong"}, r"^mdp: expected an object of a class of World, got 'pong'; .* evorl.run\('mdp=pong'\)\?$"),
        ({"rl": "ppo"}, r"^rl: expected an object of a class of Hyper, got 'ppo'"),
        ({"mdp": Gymnasium}, r"^mdp: .* got the class Gymnasium; did you mean Gymnasium\(\)\?$"),
        ({"rl": None}, "^rl: .* got None$"), ({"cluster": 3}, "^cluster: .* of Cluster, got 3$"),
        ({"budget": 20_000}, "^budget: expected a mapping with the keys steps, seconds, fitness, got 20000$"),
        ({"budget": Budget(steps=0)}, "^budget.steps: expected int >= 1, got 0$"),
        ({"rl": PPO(lr="x")}, "^rl.lr: expected .*, got 'x'$"), ({"rl": PPO(net=print)}, "^rl.net: .* got a built"),
        ({"rl": PPO(lr=float("nan"))}, "^rl.lr: expected a finite number, got nan$"),
        ({"seed": -1}, "^seed: expected int >= 0, got -1$"), ({"seed": 1.5}, "^seed: expected int, got 1.5$"),
        ({"device": "gpu"}, "^device: expected one of auto, cpu, cuda, got 'gpu'.*cuda"),
        ({"sead": 1}, r"^sead: unknown key; did you mean seed\?$"), ({"trust": ["x"]}, "^trust: unknown key"),
        ({"mdp": Gymnasium(id="CartPole-v1", time_limit=0)}, "^mdp.time_limit: expected int >= 1, got 0$"),
        ({"mdp": Gymnasium(id="NoSuchGame-v1")}, "^mdp.id: "),
    ],
)  # fmt: skip
def test_an_experiment_is_checked_as_a_config_is(arguments: Any, why: str) -> None:
    """Before it is run."""
    with pytest.raises(BadRequest, match=why):
        evorl.experiment(**{"mdp": CARTPOLE, "rl": PPO(), **arguments})


def test_an_experiment_stands_alone(place: Path) -> None:
    made = evorl.experiment(CARTPOLE, PPO())
    for words, keys in ((("mdp=pong", made), {}), ((made, "seed=1"), {}), ((made,), {"seed": 1})):
        with pytest.raises(BadRequest, match=r"^an experiment is whole, without other words"):
            evorl.run(*words, **keys)


def test_an_experiment_trusts_what_its_own_code_names(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Of a game that is started by a command, too."""
    monkeypatch.setattr(experiments, "begin", lambda *given: place)
    game = f"{sys.executable} -c 'no \\ game'"
    monkeypatch.setattr(Remote, "ready", lambda world: None)
    directory, trust = experiments.run_experiment(evorl.experiment(Remote(command=game), PPO()))
    assert directory == place and trust == (game,)


@dataclass(frozen=True, kw_only=True)
class Own(Gymnasium):
    """A world that a test puts into a script."""


def test_a_class_that_no_other_process_can_import_is_refused_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run could be trained, and not be loaded."""

    class Local(PPO):
        pass

    world, before = Gymnasium(id="CartPole-v1"), sorted(place.rglob("*"))
    why = r"^rl: Local is a class of a function, which cannot be imported again: put it into a file \(module\)$"
    with pytest.raises(BadRequest, match=why):
        evorl.experiment(world, Local())
    assert evorl.experiment(Own(id="CartPole-v1"), PPO()).mdp.id == world.id
    monkeypatch.setattr(Own, "__module__", "__main__")
    with pytest.raises(BadRequest, match=r"^mdp: Own is a class of a script or a notebook, which cannot"):
        evorl.experiment(Own(id="CartPole-v1"), PPO())
    with pytest.raises(BadRequest, match=r"^mdp: Own"):
        evorl.run(Experiment(mdp=Own(id="CartPole-v1"), rl=PPO()))
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("mdp=cartpol", "cartpole"),
        ({"mdp": "cartpole", "rl.lrr": 1}, "rl.lrr"),
        ("--help", "^--help: asks for information, which a command line prints: .* -m evorl.run --help$"),
        ("mdp=cartpole --cfg job", "^--cfg: asks for information"),
        ("--vers", "^--version: asks for information"),
        ("--list", "^--list: asks for information"),
        ("mdp=cartpole 'rl.lr=1", "is no line of words: No closing quotation"),
        ("mdp=cartpole seed=1,2", "--multirun"),
        ("--multirun mdp=cartpole seed=1,2", r"^--multirun: several runs; in Python evorl.sweep\(...\)$"),
        ("hydra.mode=MULTIRUN mdp=cartpole seed=1,2", "^--multirun: several runs"),
    ],
    ids=["choice", "key", "help", "config", "version", "list", "quotes", "several", "option", "mode"],
)
def test_a_bad_word_is_told_as_the_command_tells_it(
    words: Any, why: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(place.rglob("*"))
    with pytest.raises(BadRequest, match=why):
        evorl.run(words)
    assert sorted(place.rglob("*")) == before and capsys.readouterr().out == ""


def test_options_of_the_command_line_are_no_words(
    trained: evorl.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of configs was read as a word, after training."""
    monkeypatch.setattr(runs, "work", lambda parser, args: trained.directory)
    run = evorl.run(f"--config-dir {tmp_path} mdp=cartpole trust=[mine] --config-name=mine", {"mdp.command": "a game"})
    assert run.trust == ("mine", "a game")


def test_only_the_codes_of_signals_are_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "work", lambda parser, args: sys.exit(codes.pop()))
    codes = [3, 0, None, 128 + signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        evorl.run("mdp=cartpole")
    while codes:
        with pytest.raises(SystemExit):
            evorl.run("mdp=cartpole")


def test_a_text_is_quoted_as_in_a_shell() -> None:
    """So that a line of the docs can be copied."""
    run = evorl.run("mdp=cartpole rl=ppo 'rl.lr={start: 1e-3, end: 0, steps: 256}'", SMALL)
    assert run.config["rl"]["lr"]["start"] == 1e-3


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is no run"):
        evorl.load(tmp_path)
    misspelt = "lod"
    with pytest.raises(AttributeError, match=misspelt):
        getattr(evorl, misspelt)


def test_a_signal_saves_and_is_a_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run: Run) -> Any:
        signal.raise_signal(signal.SIGINT)
        return iterate(run)

    iterate = Run.iterate
    monkeypatch.setattr(Run, "iterate", interrupted)
    with pytest.raises(KeyboardInterrupt, match="resume=") as stop:
        evorl.run("mdp=cartpole", SMALL | {"budget.steps": 10_000_000})
    directory = str(stop.value).rpartition("resume=")[2]
    assert evorl.load(directory).state == "interrupted"


def test_a_signal_does_not_end_the_program_that_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while a job of a sweep begins, nor a second one while a run saves."""

    def interrupted(*_: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail(f"the process ends with code {code}"))
    monkeypatch.setattr(sweep, "_outcome", interrupted)
    monkeypatch.setattr(Run, "iterate", interrupted)
    for begin, words in ((evorl.sweep, "mdp=cartpole seed=1,2"), (evorl.run, "mdp=cartpole")):
        with pytest.raises(KeyboardInterrupt, match=r"^stopped; what was saved before is kept"):
            begin(words, SMALL)
    assert evorl.load("latest").state == "interrupted", "and no lock stays behind"
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_sweep_may_be_of_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_outcome", lambda composed, directory: 1.0)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(evorl.sweep, "mdp=cartpole seed=1,2", SMALL).result()
    assert [run.directory.name for run in made] == ["0", "1"]


def test_a_run_records_its_words_and_not_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a notebook are files of its user, and a worker of Ray has the addresses of its cluster."""
    monkeypatch.setattr(sys, "argv", ["/opt/ipykernel_launcher.py", "-f", "/home/zaphod/kernel.json"])
    made = evorl.run("mdp=cartpole rl=ppo", TINY)
    gone_on = evorl.resume(made.directory, {"budget.steps": 1000})
    (job,) = evorl.sweep("mdp=cartpole rl=ppo ", TINY, seed=[7])
    for run, words in ((made, ["mdp=cartpole", "rl=ppo"]), (job, ["mdp=cartpole", "rl=ppo", "seed=7"])):
        found = run.record.provenance["argv"]
        assert found[0] == "ipykernel_launcher.py" and {*words} < {*found}
        assert "/home/zaphod" not in json.dumps(run.record.provenance)
    (later,) = gone_on.record.provenance["resumed"]
    assert later["argv"] == ["ipykernel_launcher.py", f"resume={made.directory}", "budget.steps=1000"]


def test_runs_of_two_threads_record_their_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra's config is global: that of the run composed last was written into both."""
    monkeypatch.chdir(tmp_path)
    both, start = Barrier(2), job.start_run

    def start_both(*given: Any) -> float:
        both.wait(60)
        return start(*given)

    monkeypatch.setattr(job, "start_run", start_both)
    with ThreadPoolExecutor(2) as pool:
        calls = {rl: pool.submit(evorl.run, f"mdp=cartpole rl={rl}", TINY) for rl in ("ppo", "reinforce")}
        found = {rl: call.result() for rl, call in calls.items()}
    for rl, run in found.items():
        words = (run.directory / ".hydra" / "overrides.yaml").read_text()
        assert f"- rl={rl}\n" in words and run.directory.parent.name == f"cartpole-{rl}-none"
        assert f"rl: {rl}\n" in (run.directory / ".hydra" / "hydra.yaml").read_text()


@pytest.mark.parametrize("name", [None, "evorl.tests.program"])
def test_a_sweep_leaves_the_log_of_its_program_alone(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra's handler writes to the standard output of its time, which a notebook's cell or a test has closed since."""
    monkeypatch.setattr(sweep, "_outcome", lambda composed, directory: 1.0)
    root, logger, written = logging.getLogger(), logging.getLogger(name), logging.FileHandler(tmp_path / "log", "w")
    logger.addHandler(written)
    try:
        before = [*root.handlers], root.level
        logger.warning("before")
        evorl.sweep("mdp=cartpole seed=1,2", SMALL)
        logger.warning("after")
        assert (root.handlers, root.level) == before
        assert written in [known() for known in logging._handlerList], "what closes the handlers at the end"  # type: ignore[attr-defined]
    finally:
        logger.removeHandler(written)
        written.close()
    assert (tmp_path / "log").read_text() == "before\nafter\n"


def test_a_sweep_of_the_same_second_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its default name is that of the second; here it is given, and taken for the default."""
    monkeypatch.setattr(sweep, "_outcome", lambda composed, directory: 1.0)
    monkeypatch.setattr(sweep.config, "hydra_words", lambda base: [])
    for words in ("seed=1,2", "seed=3,4", "seed=3,4"):
        evorl.sweep(f"mdp=cartpole {words}", f"hydra.sweep.dir={tmp_path / 'second'}", SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["second", "second-1", "second-2"]


def test_the_runs_of_a_sweep_are_in_the_order_of_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that its index does not know."""
    for name in ("10", "2", "b/a", "unlike/11", "unlike/3", "a"):
        (tmp_path / name / ".hydra").mkdir(parents=True)
    sweeps.write_index(tmp_path, {"b/a": [], "a": []})
    monkeypatch.setattr(runs, "_command", lambda words: evorl.RunResult(tmp_path))
    found = [str(run.directory.relative_to(tmp_path)) for run in evorl.sweep("mdp=cartpole")]
    assert found == ["b/a", "a", "unlike/3", "unlike/11", "2", "10"]


def test_results_are_asked_of_random_actions_only_where_a_policy_begins(
    trained: evorl.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has learned may end its games otherwise, with other infos."""

    def refuse(world: Gymnasium) -> None:
        raise BadRequest("no such result", "mdp.results")

    monkeypatch.setattr(Gymnasium, "check_results", refuse)
    with pytest.raises(BadRequest, match="no such result"):
        evorl.run("mdp=cartpole", SMALL)
    with pytest.raises(BadRequest, match="no such result"):
        evorl.sweep("mdp=cartpole seed=1,2", SMALL)
    begun = evorl.run(f"mdp=cartpole init={trained.directory}", SMALL)
    assert evorl.run(f"resume={begun.directory} budget.steps=512").metrics.index[-1] == 512


def test_a_run_stays_where_it_is_when_the_program_goes_elsewhere(
    trained: evorl.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = evorl.load(trained.directory.relative_to(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    assert loaded.state == trained.state == "finished" and loaded.directory == trained.directory
    assert repr(loaded) == f"RunResult({str(trained.directory)!r}, finished, fitness {trained.fitness:.6g})"


def test_what_a_program_changes_in_a_config_stays_with_it(trained: evorl.RunResult) -> None:
    trained.config["rl"]["lr"] = trained.config["seed"] = 99
    assert trained.config["seed"] == 3 and trained.config["rl"]["lr"] != 99


@pytest.mark.parametrize("metrics", [3, None])
def test_what_names_no_metrics_is_refused(metrics: Any, trained: evorl.RunResult) -> None:
    with pytest.raises(BadRequest, match=f"^metrics: expected names of metrics, got {metrics}$"):
        trained.plot(metrics)


def test_a_list_of_metrics_is_drawn_as_they_are_one_by_one(trained: evorl.RunResult) -> None:
    names = ["train/return", "policy/entropy"]
    titles = [[axes.get_title("left") for axes in trained.plot(*given).axes] for given in ([names], names)]
    assert titles == [names, names]


@pytest.mark.parametrize("directory", [None, 3, ["runs"]])
def test_what_is_no_directory_is_not_loaded(directory: Any) -> None:
    with pytest.raises(BadRequest, match=r"^directory: expected a run directory, got "):
        evorl.load(directory)


def test_code_that_is_not_trusted_is_refused_with_the_call_that_trusts_it(
    trained: evorl.RunResult, tmp_path: Path
) -> None:
    shutil.copytree(trained.directory, tmp_path / "run")
    config = tmp_path / "run/.hydra/config.yaml"
    config.write_text(config.read_text().replace("CartPole-v1", "my_envs:Walk"))
    with pytest.raises(
        BadRequest, match=r"^mdp.id: needs code of my_envs; to run it: evorl.load\(..., trust=\['my_envs'\]\)$"
    ):
        evorl.load(tmp_path / "run")
    wrong: dict[str, Any] = {"trust": 3}
    with pytest.raises(BadRequest, match=r"^trust: expected names of packages, got 3$"):
        evorl.load(tmp_path / "run", **wrong)


def test_a_text_is_one_trusted_package(trained: evorl.RunResult) -> None:
    assert evorl.load(trained.directory, trust="my_envs").trust == ("my_envs",)
    assert evorl.load(trained.directory, trust=["my_envs", "games"]).trust == ("my_envs", "games")


def test_importing_evorl_imports_nothing_heavy() -> None:
    code = "import sys, evorl; print({'torch', 'hydra', 'numpy', 'ray', 'matplotlib'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
