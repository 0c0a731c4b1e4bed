"""Resuming is exact: a run that stopped and went on has the bits of one that never stopped."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from harness import (
    LSTM,
    MINDS,
    QUICK,
    WORLDS,
    experiment_of,
    fingerprint,
    go,
    newest,
    rows,
    saved_rows,
    start,
    with_signal_at,
    with_small_segments,
)

from evorl import evaluate
from evorl.cli import config
from evorl.cli.overrides import in_quotes
from evorl.jobs import job
from evorl.record import checkpoint
from evorl.record.lock import lock
from evorl.rl.core import Metrics
from evorl.training.train import Run
from evorl.util import run_directory
from evorl.util.errors import BadRequest

N = 1100
MEMORY = ("rl.batch=16", "rl.samples_per_step=4", "rl.warm_up=200")
ROLLOUTS = ("rl=vtrace", "rl.horizon=8", "rl.batch=4", "rl.fill_in=8", "rl.replay.uniform.capacity=30")
ELITE = ("rl.sampling={uniform:0,elite:0.5}", "rl.replay.elite.insertion=elite",
         "rl.replay.elite.capacity=20", "rl.replay.elite.anneal=60")  # fmt: skip
OTHERS = ("rl.sampling={queue:0,attentive:0.25,prioritized:0.25}", "rl.optimizer=rmsprop")
CASES = {
    **MINDS,
    "cartpole-members": (*WORLDS["cartpole"], "rl.members=2", "rl.slots=4"),
    "pong-self": (*WORLDS["pong"], "mdp.opponent=self", "rl.members=2", "rl.slots=4"),
    "pong-delay": (*WORLDS["pong"], "mdp.delay_ms=[0,1]", "rl.slots=4"),
    "duel-delay": (*WORLDS["duel"], "mdp.delay_ms=[0,2]", "rl.members=2", "rl.slots=4", *LSTM),
    "duel-both": (*WORLDS["duel"], "mdp.side=both", "mdp.delay_ms=[0,2]"),
    "lunarlander": ("mdp=lunarlander", "rl.slots=3", "rl.minibatch=24"),
    "a2c": (*WORLDS["cartpole"], "rl=a2c", "rl.lr={start:1e-3,end:0,steps:3000}", "rl.optimizer=rmsprop_tf"),
    "reinforce": (*WORLDS["pendulum"], "rl=reinforce"),
    "td3": ("mdp=pendulum", *MEMORY, "rl=td3", "rl.capacity=1500", "rl.members=2", "rl.normalize_inputs=true"),
    "sac": (
        "mdp=pendulum",
        *MEMORY,
        "rl=sac",
        "rl.n_step=2",
        "rl.sampling=attentive",
        "rl.replay.attentive.anneal=300",
    ),
    "vtrace": (*WORLDS["cartpole"], *ROLLOUTS, "rl.members=2", "rl.slots=3", "rl.normalize_inputs=true"),
    "vtrace-lockstep": (*WORLDS["pong"], *ROLLOUTS, *ELITE, "rl.slots=4", "rl.asynchronous=false"),
    "vtrace-learners": (*WORLDS["pong"], *ROLLOUTS, "rl.slots=4", "rl.normalize_inputs=true", "rl.learners=2"),
    "vtrace-parts": (*WORLDS["duel"], *ROLLOUTS, *OTHERS, *LSTM, "rl.slots=4"),
    "impact": (
        *(*WORLDS["cartpole"], "rl=impact", "rl.horizon=8", "rl.batch=4", "rl.members=2", "rl.slots=3"),
        *("rl.sampling={circular:0.5,elite:0.5}", "rl.replay.elite.lag=3"),
        *("rl.replay.elite.capacity=20", "rl.target_every=5"),
    ),
    "ddpg-asynchronous": ("mdp=pendulum", *MEMORY, "rl=ddpg", "rl.asynchronous=true", "rl.members=2"),
    "dqn": ("mdp=cartpole", *MEMORY, "rl=dqn", "rl.members=2", "rl.rounds=2"),
    "dqn-rainbow": (
        *("mdp=cartpole", *MEMORY, "rl=dqn", "rl.capacity=600", "rl.double=true", "rl.dueling=true", "rl.noisy=true"),
        *("rl.sampling=prioritized", "rl.distribution=c51", "rl.n_step=3", "rl.epsilon=0.1"),
    ),
    "r2d2": ("mdp=cartpole", *MEMORY, "rl=r2d2", "rl.members=2", "rl.length=4", "rl.burn_in=2", *LSTM),
    "asynchronous": (*WORLDS["cartpole"], "rl.asynchronous=true", "rl.members=2"),  # stops where member 1 is next
}


def words_of(case: str) -> list[str]:
    """Later words win, and an algorithm has only some of the quick settings."""
    words = [*QUICK, *CASES[case]]
    if case.startswith(("a2c", "reinforce", "td3", "sac", "ddpg", "dqn", "r2d2", "vtrace", "impact")):
        words = [word for word in words if not word.startswith(("rl.minibatch", "rl.passes"))]
    return list({word.partition("=")[0]: word for word in words}.values())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A case's run that nothing disturbs, with more words and a budget of so many ``steps``, made once."""
    place = tmp_path_factory.mktemp("runs")

    @cache
    def made(case: str, *more: str, steps: int = N) -> Path:
        words = {word.partition("=")[0]: word for word in (*words_of(case), *more)}
        there = place / f"run{len([*place.iterdir()])}"
        assert go(*words.values(), f"budget.steps={steps}", f"hydra.run.dir={there}") == 0
        return there

    return made


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


@pytest.mark.slow_cases(but=("td3", "asynchronous"))
@pytest.mark.parametrize("case", CASES)
def test_n_and_n_more_is_2n(case: str, run: Callable[..., Path], tmp_path: Path) -> None:
    """Also where nothing is evaluated at n in the straight run: the evaluation at an end is set aside, no more."""
    whole, halves = run(case, steps=2 * N), copied(run(case), tmp_path)
    stopped = json.loads((halves / "result.json").read_bytes())["steps"]
    assert N <= stopped < 2 * N
    assert go(f"resume={halves}", f"budget.steps={2 * N}") == 0
    assert fingerprint(halves, aside=[stopped]) == fingerprint(whole, aside=[stopped])
    results = [json.loads((each / "result.json").read_bytes()) for each in (whole, halves)]
    assert results[0]["eval"] == results[1]["eval"] and results[0]["steps"] == results[1]["steps"]
    assert json.loads((halves / f"result.{stopped}.json").read_bytes())["steps"] == stopped


@pytest.mark.slow_cases(but=("td3",))
@pytest.mark.parametrize("case", ["td3", "r2d2", "vtrace-lockstep"])
def test_rows_written_ahead_of_checkpoints_change_no_bit(
    case: str, run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, ahead = run(case, steps=2 * N), tmp_path / "run"
    there, names = with_small_segments(monkeypatch)
    for words in ((*words_of(case), f"budget.steps={N}", f"hydra.run.dir={ahead}"),
                  (f"resume={ahead}", f"budget.steps={2 * N}")):  # fmt: skip
        assert go(*words) == 0
        assert max(there) > 1 and names == saved_rows(ahead) and not [*ahead.glob("checkpoints/.*")]
        there.clear()
    stopped = json.loads((whole / "result.json").read_bytes())["steps"]
    assert fingerprint(ahead, aside=[stopped])["state"] == fingerprint(whole, aside=[stopped])["state"]


LOCAL, WORKERS, MORE = ("cluster=local",), ("cluster=processes", "cluster.workers=2"), ("cluster.workers=3",)
MOVES = {"to workers": (LOCAL, WORKERS), "from workers": (WORKERS, LOCAL), "to more workers": (WORKERS, MORE)}


@pytest.mark.slow_cases(but=("to workers",))
@pytest.mark.parametrize(("first", "then"), MOVES.values(), ids=MOVES)
def test_where_it_goes_on_changes_no_bit(
    first: tuple[str, ...], then: tuple[str, ...], run: Callable[..., Path], tmp_path: Path
) -> None:
    members = "rl.members=3"
    whole = run("cartpole-members", members, steps=2 * N)
    halves = copied(run("cartpole-members", members, *first), tmp_path)
    stopped = json.loads((halves / "result.json").read_bytes())["steps"]
    assert go(f"resume={halves}", *reversed(then), f"budget.steps={2 * N}") == 0
    assert ("cluster/replaced" in rows(halves)[-2]) == (then != LOCAL)
    assert fingerprint(halves, aside=[stopped]) == fingerprint(whole, aside=[stopped])
    place = (*first, *then)
    assert f"cluster={job.choices(halves)['cluster']}" == [word for word in place if word.startswith("cluster=")][-1]
    assert config.experiment_of_run(halves).cluster == experiment_of(*(then if then != MORE else place)).cluster
    assert go(f"resume={halves}", *then) == 0  # no change


@pytest.mark.slow
def test_the_number_of_learners_may_change_on_the_way(run: Callable[..., Path], tmp_path: Path) -> None:
    halves = copied(run("vtrace-learners"), tmp_path)
    for number, steps in ((1, 2), (2, 3)):
        assert go(f"resume={halves}", f"rl.learners={number}", f"budget.steps={steps * N}") == 0
        assert ("speed/all_reduce_seconds" in rows(halves)[-2]) == (number == 2)
        assert config.experiment_of_run(halves).rl.learners == number
    assert go(f"resume={halves}", "rl.learners=3", f"budget.steps={4 * N}") == 2  # which divides no minibatch of 4


@pytest.mark.slow
def test_resume_where_it_was_evaluated_anyway_equals_in_everything(tmp_path: Path) -> None:
    words = [*words_of("cartpole"), "eval.every=256", "checkpoint.every=256"]
    words = list({word.partition("=")[0]: word for word in words}.values())
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert go(*words, "budget.steps=2048", f"hydra.run.dir={whole}") == 0
    assert go(*words, "budget.steps=512", f"hydra.run.dir={parts}") == 0
    for steps in (768, 1536, 2048):
        assert go(f"resume={parts}", f"budget.steps={steps}") == 0
    assert fingerprint(parts) == fingerprint(whole)
    assert [row["step"] for row in rows(parts) if "eval/return_mean" in row] == [*range(256, 2049, 256)]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["duel", "duel-lstm", "pong"])
def test_when_answers_arrive_changes_nothing(case: str, run: Callable[..., Path]) -> None:
    prompt = run(case, *(["mdp.delay_ms=[0,0]"] if case == "pong" else []))
    assert fingerprint(run(case, "mdp.delay_ms=[0,3]")) == fingerprint(prompt)


@pytest.mark.slow
def test_pong_as_battles_trains_to_the_bits_of_pong_in_arrays(run: Callable[..., Path]) -> None:
    learned = [fingerprint(run("pong", *how))["state"]["run"]["learner"] for how in ([], ["mdp.delay_ms=[0,0]"])]
    assert learned[0] == learned[1]


@pytest.mark.slow
def test_a_fresh_process_with_another_hash_seed_gives_the_same_bits(run: Callable[..., Path], tmp_path: Path) -> None:
    for hash_seed in ("1", "77"):
        words = [*words_of("duel"), f"budget.steps={N}", f"hydra.run.dir={hash_seed}"]
        process = start(*words, cwd=tmp_path, PYTHONHASHSEED=hash_seed)
        assert process.wait(60) == 0, (tmp_path / "err").read_text()
        assert fingerprint(tmp_path / hash_seed) == fingerprint(run("duel"))


@pytest.fixture
def finished(run: Callable[..., Path]) -> Path:
    return run("cartpole")


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_finished_run_says_so_and_stays(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(finished, tmp_path)
    before = contents(run)
    assert go(f"resume={run}") == 0
    assert "finished; a larger budget goes on" in capsys.readouterr().out
    assert contents(run) == before


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["record.group=mine"], "record.group: {run} has ended; another value needs budget.steps="),
        (["budget.seconds=9000"], "budget.steps: the run has ended at "),
        (["budget.steps=STEPS"], "budget.steps: the run has ended at "),
        (["budget.steps=9000", "budget.seconds=0.001"], "budget.seconds: the run has ended at "),
    ],
)
def test_a_finished_run_does_not_take_what_would_not_let_it_go_on(
    words: list[str], line: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(finished, tmp_path)
    before = contents(run)
    steps = str(json.loads((run / "result.json").read_text())["steps"])
    assert go(f"resume={run}", *(word.replace("STEPS", steps) for word in words)) == 2
    assert capsys.readouterr().err.startswith("evorl: " + line.format(run=run)) and contents(run) == before


@pytest.mark.parametrize("ended_by", [3, {"patience": 1.0}, {"steps": "many"}])
def test_a_result_whose_limits_are_none_is_damaged(ended_by: Any, finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path)
    told = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**told, "ended_by": ended_by}))
    assert go(f"resume={run}") == 0
    assert json.loads((run / "result.json").read_text())["ended_by"] == told["ended_by"]


def test_a_run_that_an_older_version_ended_says_what_to_raise(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(finished, tmp_path)
    told = json.loads((run / "result.json").read_text())
    del told["ended_by"]
    (run / "result.json").write_text(json.dumps(told))
    assert go(f"resume={run}") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"budget.steps={2 * told['steps']}")


def test_the_printed_command_raises_the_limit_that_ended_a_population(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is compared with the fitness of the search, and the result has that of held-out episodes."""
    run = tmp_path / "run"
    words = ("mdp=cartpole", "ec=cma_es", "ec.population=4", "ec.episodes=1", "eval.episodes=2", "seed=5")
    assert go(*words, "budget.fitness=30", "budget.steps=5000", f"hydra.run.dir={run}") == 0
    steps = json.loads((run / "result.json").read_text())["steps"]
    assert steps < 5000 and go(f"resume={run}") == 0
    printed = capsys.readouterr().out.splitlines()[-1]
    assert printed.endswith(f"resume={run} budget.fitness=null")
    assert go(f"resume={run}", "budget.fitness=null", f"budget.steps={steps + 100}") == 0
    assert json.loads((run / "result.json").read_text())["steps"] > steps


def test_without_a_checkpoint_it_starts_at_0(finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path)
    shutil.rmtree(run / "checkpoints")
    (run / "result.json").unlink()
    assert go(f"resume={run}") == 0
    assert fingerprint(run) == fingerprint(finished)


def test_killed_before_its_result_it_writes_the_result(finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path)
    (run / "result.json").unlink()
    assert go(f"resume={run}") == 0
    old, new = (json.loads((each / "result.json").read_bytes()) for each in (finished, run))
    assert all(new[name] == old[name] for name in ("steps", "fitness", "eval", "best"))
    assert fingerprint(run) == fingerprint(finished)


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("rl.lr=1e-3", "rl.lr"),
        ("seed=1", "seed"),
        ("rl.slots=16", "rl.slots"),
        ("mdp=pendulum", "mdp"),
        ("eval.episodes=9", "eval.episodes"),
        ("checkpoint.keep=9", "checkpoint.keep"),
        ("rl.lrr=1", "rl.lr"),
        ("budget.stepz=5", "budget.steps"),
        ("budget.steps=-5", "budget.steps"),
        ("budget.steps=9", " steps already"),
        ("record.wandb=perhaps", "record.wandb"),
        ("cluster=proceses", "did you mean processes?"),
        (
            "cluster.workers=2",
            "cluster.workers: unknown key of cluster=local; it belongs to cluster=processes, cluster=ray",
        ),
        ("cluster.worker=2", "cluster.worker: unknown key of cluster=local; did you mean cluster.workers of cluster="),
        ("device=cuda", "device: is auto in that run, and stays"),
        ("mdp.time_limit=9", "mdp.time_limit: is "),
        ("rl={clip: 0.1}", "rl: is ppo in that run, and stays"),
        ("rl.net.hidden=[9]", "rl.net.hidden: is [16] in that run, and stays"),
        ("rl._target_=evorl.rl.a2c.A2C", "rl._target_: is evorl.rl.ppo.PPO in that run, and stays"),
        ("+rl.baseline=true", "rl.baseline: unknown key"),
        ("++rl.lr=1", "rl.lr: is "),
        ("~rl.lr", "rl.lr: takes one value here: rl.lr=VALUE"),
        ("~budget.steps", "budget.steps: takes one value here"),
        ("budget.steps=1,2", "budget.steps: takes one value here"),
        ("budget=null", "budget: "),
        ("budget={steps: 9, speed: 1}", "budget.speed: unknown key; "),
        ("record={speed: 1}", "record: is default in that run, and stays"),
        ("ec=pbt", "ec: is none in that run, and stays"),
        ("+ec.population=3", "ec.population: "),
        ("tuned=pong_ppo", "tuned: is cartpole_ppo in that run, and stays"),
        ("+debug=tiny", "debug: has no place here"),
        ("init_optimizer=true", "init_optimizer: is False in that run, and stays"),
        ("replay=somewhere", "replay: repeats one run, alone on the command line"),
        ("hydra.run.dir=elsewhere", "hydra.run.dir: has no place here"),
        ("hydra/launcher=ray", "hydra/launcher: is basic in that run, and stays"),
        ("checkpoint.every=1", "checkpoint.every: is 300 in that run, and stays"),
        (
            "record._target_=evorl.training.experiment.Budget",
            "record._target_: evorl.training.experiment.Budget is no Record dataclass",
        ),
        ("cluster._target_=os.system", "cluster._target_: os.system is outside evorl"),
    ],
)
def test_what_may_not_change_is_refused(
    word: str, names: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(finished, tmp_path)
    before = contents(run)
    assert go(f"resume={run}", word) == 2
    err = capsys.readouterr().err
    assert names in err and len(err.splitlines()) == 1
    assert contents(run) == before


def test_how_it_is_recorded_may_change(finished: Path, tmp_path: Path) -> None:
    runs = [copied(finished, tmp_path / name) for name in ("as before", "with pictures")]
    for run, words in zip(runs, ([], ["record.tensorboard=true"]), strict=True):
        assert go(f"resume={run}", f"budget.steps={2 * N}", *words) == 0
    assert (
        config.experiment_of_run(runs[1]).record.tensorboard
        and not config.experiment_of_run(runs[0]).record.tensorboard
    )
    assert [*runs[1].rglob("events.out.*")] and not [*runs[0].rglob("events.out.*")]
    assert fingerprint(runs[1]) == fingerprint(runs[0])


def test_the_same_value_again_is_no_change(finished: Path) -> None:
    assert go(f"resume={finished}", "rl.horizon=16", "seed=0") == 0


def test_resume_of_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(f"resume={tmp_path}") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_another_process_writes_is_left_alone(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(finished, tmp_path)
    before = contents(run)
    with lock(run):
        assert go(f"resume={run}", f"budget.steps={2 * N}") == 2
    assert "another process" in capsys.readouterr().err
    assert contents(run) == before


def test_no_whole_checkpoint_is_a_bad_request(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(finished, tmp_path)
    for file in run.glob("checkpoints/*/state.json"):
        file.write_bytes(b"")
    before = contents(run)
    assert go(f"resume={run}", f"budget.steps={2 * N}") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "no checkpoint" in err and "state.json" in err
    assert contents(run) == before
    with pytest.raises(BadRequest, match="whole"):
        checkpoint.newest(run)


def test_before_its_first_checkpoint_it_begins_from_the_same_policy(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.parent)
    run = tmp_path / "run"
    words = [*words_of("cartpole"), f"budget.steps={N}", f"init={finished.name}"]
    assert go(*words, f"hydra.run.dir={run}") == 0
    whole = fingerprint(run)
    assert whole != fingerprint(finished)
    shutil.rmtree(run / "checkpoints")
    (run / "result.json").unlink()
    monkeypatch.chdir(tmp_path)
    assert go(f"resume={run}") == 0
    assert fingerprint(run) == whole


def test_the_state_of_another_optimiser_is_not_taken(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a2c = [word for word in words_of("a2c") if not word.startswith("rl.optimizer")]
    words = [*a2c, f"budget.steps={N}", f"init={finished}", "init_optimizer=true"]
    capsys.readouterr()
    assert go(*words, "rl.optimizer=rmsprop", f"hydra.run.dir={tmp_path / 'rmsprop'}") == 2
    line = f"evorl: init_optimizer: {finished} has the state of adam, and this run has rmsprop\n"
    assert capsys.readouterr().err == line and not (tmp_path / "rmsprop").exists()
    assert go(*words, f"hydra.run.dir={tmp_path / 'adam'}") == 0


@pytest.mark.slow_cases(but=("rename",))
@pytest.mark.parametrize("at", ["rename", "replace"])
def test_killed_between_its_old_result_and_its_new_config_it_can_go_on(
    at: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(run_directory, at)

    def killed(root: Path, name: str, *rest: Any) -> None:
        if name in ("result.json", ".hydra/config.yaml"):
            raise KeyboardInterrupt
        real(root, name, *rest)

    run = copied(finished, tmp_path)
    monkeypatch.setattr(run_directory, at, killed)
    assert go(f"resume={run}", f"budget.steps={2 * N}") == 130
    monkeypatch.undo()
    assert go(f"resume={run}", f"budget.steps={2 * N}") == 0
    assert json.loads((run / "result.json").read_bytes())["steps"] >= 2 * N


@pytest.mark.slow_cases(but=("config.yaml",))
@pytest.mark.parametrize("at", ["provenance.json", "hydra.yaml", "config.yaml"])
def test_killed_before_it_was_a_run_it_is_begun_by_the_same_command(
    at: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, write = tmp_path / "run", run_directory.write

    def killed(root: Path, name: str, chunks: Any) -> Any:
        write(root, name, chunks)
        if name.endswith(f".{at}.partial"):
            raise KeyboardInterrupt

    words = (*words_of("cartpole"), f"budget.steps={N}", f"hydra.run.dir={run}")
    monkeypatch.setattr(run_directory, "write", killed)
    assert go(*words) == 130
    monkeypatch.undo()
    assert run.exists() and not job.is_run(run)
    assert go(*words) == 0
    assert fingerprint(run) == fingerprint(finished)
    assert "resumed" not in json.loads((run / "provenance.json").read_bytes())


@pytest.mark.parametrize("text", ["", "hydra: 3", "hydra: {runtime: {}}", "hydra: {runtime: {choices: x}}"])
def test_a_damaged_hydra_file_is_a_bad_request(
    text: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(finished, tmp_path)
    (run / ".hydra" / "hydra.yaml").write_text(text)
    assert go(f"resume={run}") == 2
    err = capsys.readouterr().err
    assert err.startswith("evorl: resume: ") and "hydra.yaml" in err and err.count("\n") == 1


@pytest.mark.slow_cases(but=("half way",))
@pytest.mark.parametrize("last", [False, True], ids=["half way", "at the end"])
def test_a_signal_ends_an_evaluation_at_once(last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*words_of("cartpole"), "eval.every=600", "eval.episodes=4", f"budget.steps={N}")
    run, whole = tmp_path / "run", tmp_path / "whole"
    every = with_signal_at(monkeypatch, 0)
    assert go(*words, f"hydra.run.dir={whole}") == 0
    monkeypatch.undo()
    decision = every[0] - 5 if last else 5
    made = with_signal_at(monkeypatch, decision)
    assert go(*words, f"hydra.run.dir={run}") == 130
    monkeypatch.undo()
    assert made == [decision]
    state = newest(run)
    assert state["evaluation_due"] and (state["run"]["steps"] >= N) == last
    assert not any("eval/return_mean" in row and row["step"] == state["run"]["steps"] for row in rows(run))
    assert go(f"resume={run}") == 0
    assert fingerprint(run) == fingerprint(whole)
    assert rows(run)[-1]["step"] == rows(whole)[-1]["step"]


def test_a_run_that_lacks_descriptors_saves_and_says_so(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, asked = tmp_path / "run", [0]

    def few() -> int:
        asked[0] += 1
        return 40 if asked[0] < 3 else 9

    monkeypatch.setattr("evorl.util.descriptors.left", few)
    assert go(*words_of("cartpole"), f"budget.steps={N}", f"hydra.run.dir={run}") == 1
    monkeypatch.undo()
    said, step = capsys.readouterr().err, newest(run)["run"]["steps"]
    assert said.startswith("evorl: 9 of the open files") and f"saved at step {step}" in said and said.count("\n") == 1
    assert 0 < step < N
    assert go(f"resume={run}") == 0
    assert fingerprint(run) == fingerprint(finished)


def test_stopped_at_its_very_end_it_is_evaluated_and_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, iterate = tmp_path / "run", Run.iterate

    def stopped(self: Run) -> Metrics:
        metrics = iterate(self)
        if self.steps >= N:
            signal.raise_signal(signal.SIGTERM)
        return metrics

    monkeypatch.setattr(Run, "iterate", stopped)
    assert go(*words_of("cartpole"), f"budget.steps={N}", f"hydra.run.dir={run}", "checkpoint.keep=1") == 143
    monkeypatch.undo()
    assert newest(run)["judged"] is None and not (run / "result.json").exists()
    assert go(f"resume={run}") == 0
    result = json.loads((run / "result.json").read_bytes())
    state = newest(run)
    assert state["judged"]["step"] == state["run"]["best"][1] == state["run"]["steps"] == result["steps"]
    for which in ("latest", "best"):
        capsys.readouterr()
        assert evaluate.main([f"run={run}", f"checkpoint={which}", "json=true"]) == 0
        again = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (
            again == {"run": "run", "step": result["steps"], "seed": 0, "fitness": result["fitness"]} | result["eval"]
        )


def test_names_that_look_like_numbers_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("mdp=cartpole", *QUICK, "budget.steps=128")
    assert go(*words, "hydra.run.dir=20261201_0433") == 0
    assert go("resume=20261201_0433", "budget.steps=256") == 0
    assert go(*words, "init=20261201_0433", "hydra.run.dir=1e3") == 0
    assert go("--multirun", *words, "init=1e3,20261201_0433", "hydra.sweep.dir=true") == 0
    assert {str(place) for place in Path().iterdir()} == {"20261201_0433", "1e3", "true"}
    assert [config.read_run_config(Path("true", job), "run")["init"] for job in "01"] == [
        str(tmp_path / "1e3"), str(tmp_path / "20261201_0433"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("replay=-1_0", "replay='-1_0'"),
        ("opponents.runs=[1e3, runs/a,NaN,3@best]", "opponents.runs=['1e3', runs/a,'NaN',3@best]"),
        ("++hydra.run.dir=1.5", "++hydra.run.dir='1.5'"),
        *((word, word) for word in ("init=null", "init='a, 1, b'", "init=runs/12", "init=1_0/2", "init=range(1,9,2)")),
        ("init=é1", "init='é1'"),
        ("seed=1_0", "seed=1_0"),
    ],
)
def test_quotes_of_directories(word: str, quoted: str) -> None:
    assert in_quotes(word) == quoted
