"""What only a GPU can show: that it computes, the same bits each time, and that its runs are read without one."""

from __future__ import annotations

import gc
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import QUICK, fingerprint, go, newest
from torch import Tensor

from evorl import evaluate
from evorl.nets.capture import Trace, capture
from evorl.nets.trees import Tree
from evorl.record import metrics
from evorl.record.hardware import Hardware
from evorl.rl.data_parallel import Collective, Step

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]

BRIEF = ("record.tensorboard=false", "eval.episodes=1", "eval.every=0")
REPLAY = (*BRIEF, "rl.warm_up=64")
PICTURES = ("mdp=atari", "mdp.game=pong", "mdp.time_limit=50", *BRIEF)
VTRACE = ("rl=vtrace", "rl.slots=4", "rl.fill_in=8", "rl.batch=4")
RUNS = {
    "ppo": ("mdp=pendulum", *QUICK),
    "lstm": ("mdp=pendulum", *QUICK, "rl.net.lstm=8"),
    "whiten": ("mdp=pendulum", *QUICK, "rl.normalize_inputs=whiten"),
    "a3c": ("mdp=cartpole", *BRIEF, "rl.slots=4", "rl=a3c", "rl.optimizer=rmsprop"),
    "images": (*PICTURES, "rl.slots=4", "rl.horizon=16", "rl.minibatch=32"),
    "vtrace": (*PICTURES, *VTRACE, "rl.asynchronous=false", "rl.optimizer=rmsprop_tf"),
    "dqn": (*PICTURES, "rl=dqn", "rl.warm_up=64"),
    "rainbow": ("mdp=cartpole", "rl=dqn", "+experiment=rainbow", *REPLAY),
    "r2d2": ("mdp=cartpole", "rl=r2d2", *REPLAY),
    "td3": ("mdp=pendulum", "rl=td3", *REPLAY),
    "sac": ("mdp=pendulum", "rl=sac", *REPLAY),
    "processes": ("mdp=pendulum", *QUICK, "cluster=processes", "cluster.workers=2"),
    "population": ("mdp=cartpole", *QUICK, "ec=pbt", "ec.population=2", "ec.train_steps=128", "ec.episodes=1"),
    "shared critic": ("mdp=pendulum", "rl=td3", "ec=cem_rl", "ec.population=4", "ec.trained=2", *BRIEF),
}


def run(directory: Path, *words: str) -> Path:
    assert go(*words, "device=cuda", f"hydra.run.dir={directory}") == 0
    return directory


@pytest.mark.parametrize("name", RUNS)
def test_a_command_gives_the_same_bits_again_and_a_resumed_run_those_of_an_undisturbed_one(
    tmp_path: Path, name: str
) -> None:
    words = (*RUNS[name], "checkpoint.every=256")
    once, again, resumed = (
        run(tmp_path / place, *words, f"budget.steps={steps}")
        for place, steps in (("once", 1024), ("again", 1024), ("resumed", 512))
    )
    stopped = newest(resumed)["run"]["steps"]
    assert go(f"resume={resumed}", "budget.steps=1024") == 0
    assert fingerprint(again) == fingerprint(once)
    assert fingerprint(resumed, aside=[stopped]) == fingerprint(once, aside=[stopped])


def test_actors_that_do_not_wait_learn_on_a_gpu(tmp_path: Path) -> None:
    words = (*PICTURES, *VTRACE, "budget.steps=1024")
    learner = newest(run(tmp_path / "run", *words))["run"]["learner"]
    assert learner["optimizer"]["t"] > 0
    assert all(torch.isfinite(torch.as_tensor(x)).all() for x in learner["policy"].values())


def test_a_learner_that_is_gone_gives_its_graph_back_while_none_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners are in reference cycles: Python gives their memory back whenever it collects garbage."""
    x, perform = torch.ones(3, device="cuda"), Trace.perform
    gone: list[Any] = [capture(lambda x: (x + 1,), x)]

    def leaving(record: Trace, *arguments: Tensor) -> tuple[Tensor, ...]:
        if torch.cuda.is_current_stream_capturing():
            cycle: list[Any] = [gone.pop()]
            cycle.append(cycle)
            del cycle
            rest = [[] for _ in range(10_000)]  # more than a collection waits for
            assert rest
        return perform(record, *arguments)

    monkeypatch.setattr(Trace, "perform", leaving)
    replay = capture(lambda x: (x * 2,), x)
    assert not gone
    gc.collect()
    assert torch.equal(replay(x)[0], x * 2)


def test_a_run_is_evaluated_without_its_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(tmp_path / "run", *RUNS["ppo"], "budget.steps=256")
    found = []
    for place in ("cuda", "cpu"):
        assert evaluate.main([f"run={made}", f"device={place}", "episodes=2", "json=true"]) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert found[0]["return_mean"] == pytest.approx(found[1]["return_mean"], rel=1e-2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("mdp=pong", f"rl.learners={torch.cuda.device_count() + 1}"), "rl.learners: each takes a GPU of its own"),
        (("mdp=pong", "rl.compile=true"), "rl.compile: compiles for the CPU: device=cpu"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert go(*words, "device=cuda", f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert line in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_readings_of_a_gpu(tmp_path: Path) -> None:
    reader = Hardware(tmp_path)
    reader.read()
    x = torch.ones(2048, 2048, device="cuda")
    for _ in range(200):
        x = x @ x / x.shape[0]
    torch.cuda.synchronize()
    found = {name: value for name, value in reader.read().items() if "gpu" in name}
    metrics.check(found)
    assert 0 <= found["hardware/gpu_0"] <= 1
    assert found["hardware/gpu_memory_0"] > 16  # of x
    assert 0 < found["hardware/energy_gpu_0"] < math.inf


# ------------------------------------------------------------------ nccl


class Learner:
    """The least that takes a step."""

    def __init__(self) -> None:
        self.collective: Collective | None = None
        self.device = torch.device("cuda", 0)
        self.weight = torch.ones(5, device=self.device)

    def own(self) -> tuple[Tree, ...]:
        return (self.weight,)

    def steps(self) -> tuple[Callable[..., dict[str, Tensor]], ...]:
        return (self.take,)

    def take(self, x: Tensor) -> dict[str, Tensor]:
        return {"mean": x.mean(), "rows": x}


@pytest.fixture
def alone() -> Iterator[Collective]:
    """One learner among itself: as many as one GPU can show."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        collective = Collective(file.name, 0, 1, torch.device("cuda", 0))
    yield collective
    collective._abort()
    Path(file.name).unlink(missing_ok=True)


def test_sums_of_nccl(alone: Collective) -> None:
    learner, x = Learner(), torch.arange(4.0, device="cuda")
    alone.synchronise(learner)
    found = alone.take(learner, Step(0, 0, 4, 4), [x])
    assert learner.weight.tolist() == [1] * 5 and found["mean"] == 1.5 and found["rows"].tolist() == x.tolist()
    assert alone.mean(x).tolist() == x.tolist()
