"""What the tests of whole runs share: training in a directory, and comparing two runs bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal, Self

import numpy as np
import pytest
import torch

from evorl.cli import config, hydra_internals
from evorl.cli.hydra_internals import Hydra
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Controller, Discrete, Input, Spec, State, Step
from evorl.population.work import new_work
from evorl.record import checkpoint, segments
from evorl.record.lock import lock
from evorl.rl.evaluation import EvaluationNoise
from evorl.training.experiment import Experiment
from evorl.training.session import BuiltRun, OpenRun, run_to_end
from evorl.training.train import Start
from evorl.util.seed import generator

ROOT = Path(__file__).parent.parent
# rl.compile is for whoever has a compiler, and refused elsewhere, which is tested everywhere
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("g++") is None, reason="no g++, which `make test-all` installs as root"
)
QUICK = (
    *("record.tensorboard=false", "eval.episodes=2", "eval.every=0", "checkpoint.every=300"),
    *("rl.slots=8", "rl.horizon=16", "rl.minibatch=64", "rl.passes=2", "rl.net.hidden=[16]"),
)
WORLDS = {
    "pong": ("mdp=pong", "mdp.rounds=2", "mdp.round_steps=100"),
    "cartpole": ("mdp=cartpole",),
    "pendulum": ("mdp=pendulum", "rl.normalize_inputs=true", "rl.normalize_rewards=true"),
    "duel": ("mdp=duel", "mdp.ground.limit=10"),
}
LSTM = ("rl.net.lstm=8",)
MINDS = {**WORLDS, **{f"{name}-lstm": (*words, *LSTM) for name, words in WORLDS.items()}}
"""Each world for a policy without and with memory."""


# ------------------------------------------------------------------ running


def script(name: str) -> ModuleType:
    """The program scripts/NAME.py as a module."""
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOADERS: dict[str, Any] = {}
"""The loaders of this process by what they search."""


def with_known_loader(task: str, new: Any) -> Hydra:
    """A composer with the loader of the commands before, if the files that it searches stay while tests run.

    Compositions take memory, so a loader is forgotten after some.
    """
    folders = [str(element.path) for element in new.config_search_path.get_path()]
    if any(folder.startswith("file://") and not folder.startswith(f"file://{ROOT}") for folder in folders):
        return Hydra(task, new)
    known = LOADERS.get(str(folders))
    if known is None or len(known.merged) > 20:
        known = LOADERS[str(folders)] = new
    return Hydra(task, known)


@contextmanager
def composed_once() -> Iterator[None]:
    """To compose takes half of the time of a short run, and the runs of a test module make the same choices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydra_internals, "Hydra", with_known_loader)
        yield


def go(*words: str) -> int:
    """The exit code of ``evorl run`` with these words, in this process; of each choice the last one."""
    from evorl.cli.repeats import last_choices
    from evorl.run import main

    with composed_once():
        return main(last_choices(words))


@cache
def experiment_of(*words: str) -> Experiment:
    """What these words describe, without a directory."""
    with composed_once(), config.opened() as hydra:
        return config.experiment(config.resolved(config.compose(hydra, list(words))))


def start(*words: str, entry: str = "run", cwd: Path, **env: str) -> subprocess.Popen[str]:
    """A command in its own process and session, its output in ``cwd``/out and /err, its temporary files in /tmp."""
    (cwd / "tmp").mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated environment
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TMPDIR": str(cwd / "tmp"), **env}
    with (cwd / "out").open("w") as out, (cwd / "err").open("w") as err:
        return subprocess.Popen(
            [sys.executable, "-m", f"evorl.{entry}", *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True, cwd=cwd, env=environment,
            start_new_session=True,
        )  # fmt: skip


def train_in(directory: Path, experiment: Experiment, init: Path | None = None) -> dict[str, Any]:
    """Train or evolve in a directory that is made where it is missing, or go on there."""

    @contextmanager
    def opened() -> Iterator[OpenRun]:
        directory.mkdir(exist_ok=True)
        with lock(directory):
            yield directory, work.load(directory, lambda run, state: state)

    work = BuiltRun(lambda: new_work(experiment, None if init is None else Start(init)))
    return run_to_end(work, opened)


def with_small_segments(patch: pytest.MonkeyPatch) -> tuple[list[int], set[str]]:
    """Let a run write rows ahead of its checkpoints all the time. Return, as it goes on, how many files lay there after
    each look, and the names of the rows."""
    there: list[int] = []
    names: set[str] = set()
    write_ahead = checkpoint.write_ahead

    def noted(known: segments.Segments, state: Any) -> None:
        write_ahead(known, state)
        there.append(len([*(known.run_dir / known.ahead).glob("*")]))
        names.update(known.known)

    patch.setattr(segments, "SEGMENT_BYTES", 2000)
    patch.setattr(checkpoint, "write_ahead", noted)
    return there, names


def saved_rows(directory: Path) -> set[str]:
    """The names of the rows in a run's newest checkpoint."""
    place = directory / "checkpoints"
    state = json.loads((place / (place / "latest").read_text().strip() / "state.json").read_bytes())
    return {*state["rows"]}


def with_signal_at(patch: pytest.MonkeyPatch, decision: int, number: int = signal.SIGINT) -> list[int]:
    """Send a signal at this decision of an evaluation. Return, as it goes on, the number of decisions so far."""
    made = [0]

    def noted(noise: EvaluationNoise, rows: Any) -> Any:
        made[0] += 1
        if made[0] == decision:
            signal.raise_signal(number)
        return take(noise, rows)

    take = EvaluationNoise.take
    patch.setattr(EvaluationNoise, "take", noted)
    return made


def for_a_ray_in_here(patch: pytest.MonkeyPatch) -> None:
    """The environment in which this process may begin a Ray with several nodes, and workers find the tests' modules."""
    patch.setenv("PYTHONPATH", os.pathsep.join(os.path.abspath(one) for one in sys.path))
    patch.setenv("RAY_AUTH_MODE", os.environ.get("RAY_AUTH_MODE", "disabled"))  # Ray reads it once in a process


def relatives(place: Path) -> set[int]:
    """The live processes whose temporary files go to ``place``, whoever their parents are now."""
    mark = f"TMPDIR={place}".encode()
    found = set()
    for one in Path("/proc").iterdir():
        try:
            if one.name.isdigit() and mark in (one / "environ").read_bytes().split(b"\0"):
                found.add(int(one.name))
        except OSError:  # it has ended
            continue
    return found


def title(pid: int) -> bytes:
    """The command line of a process, or what it has put in its place; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int:
    """The process that a process was forked by; 0 for one that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def learners_of(pid: int) -> list[int]:
    """The other learners (``rl.learners``) of a run's process, in their order."""
    others = [other for other in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(other) == pid]
    named = {(Path(f"/proc/{other}/comm").read_text(), other) for other in others}
    return [other for name, other in sorted(named) if name.startswith("learner")]


# ------------------------------------------------------------------ comparing


def rows(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def timeless(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what the clock says, what the hardware did, and what befell the cluster."""
    timed = ("speed/", "hardware/", "cluster/")
    return [{k: v for k, v in row.items() if k != "time" and not k.startswith(timed)} for row in found]


def newest(directory: Path) -> dict[str, Any]:
    found = checkpoint.newest(directory)
    assert found is not None
    return found[1]


def fingerprint(directory: Path, *, aside: Sequence[int] = ()) -> dict[str, Any]:
    """Every bit of a run that must not depend on how it came about: its newest checkpoint and its rows.

    ``aside``: steps at which one run stopped, and was evaluated, and the other did not.
    """
    state = newest(directory)
    del state["recorder"]["time"], state["recorder"]["offset"]
    state["recorder"].pop("files", None)  # offsets, as the one above
    state["run"].pop("clock", None)
    state["recorder"]["steps"].pop("cluster", None)
    found = timeless(rows(directory))
    if aside:
        del state["run"]["best"]
        found = [row for row in found if not (row["step"] in aside and any(name.startswith("eval/") for name in row))]
    return {"state": _digested(state), "rows": found}


def _digested(node: Any) -> Any:
    """The same tree with the SHA-256 of every array's bytes in its place."""
    if isinstance(node, Mapping):
        return {name: _digested(child) for name, child in node.items()}
    if isinstance(node, torch.Tensor | np.ndarray):
        array = node.numpy() if isinstance(node, torch.Tensor) else node
        return (str(node.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest())
    return node


# ------------------------------------------------------------------ worlds


@dataclass(frozen=True, kw_only=True)
class Faulty(BattleWorld):
    """Endless and dull until decision ``at`` of an episode, where something breaks (``fitness``: at a later end)."""

    fault: Literal["nothing", "observation", "reward", "crash", "fitness"] = "nothing"
    at: int = 0
    length: int = 1000

    @property
    def spec(self) -> Spec:
        return Spec((Input("sight", (2,)),), Discrete(2), ("gain",))

    def reset(self, *players: int, seed: int) -> Alone:
        return Alone(*(_FaultySide(self) for _ in players))


class _FaultySide:
    def __init__(self, world: Faulty) -> None:
        self.world, self.t = world, 0

    @property
    def state(self) -> State:
        broken = self.world.fault == "observation" and self.t == self.world.at
        return State((np.array([np.nan if broken else 0.5, self.t / 100], np.float32),))

    async def __call__(self, action: Array) -> Step:
        self.t += 1
        now = self.world.fault if self.t == self.world.at else "nothing"
        if now == "crash":
            raise RuntimeError(f"the roof fell in at decision {self.t}")
        reward = np.inf if now == "reward" else float(action[0])
        return Step(np.array([reward], np.float32), terminated=self.t >= self.world.length)

    def result(self) -> Mapping[str, float]:
        told = {"score": float(self.t)}
        return {**told, "fitness": np.nan if self.t > self.world.at else 1.0} if self.world.fault == "fitness" else told


@dataclass(frozen=True, kw_only=True)
class Recall(BattleWorld):
    """A cue of +1 or -1 in the first state only; after ``wait`` blank ones its sign must be told, for a reward of 1."""

    wait: int = 4
    budget: int = 100_000

    @property
    def spec(self) -> Spec:
        return Spec((Input("cue", (2,)),), Discrete(2))

    def reset(self, *players: int, seed: int) -> Alone:
        return Alone(_RecallSide(self.wait, int(generator("cue", seed).integers(2))))


class _RecallSide:
    def __init__(self, wait: int, cue: int) -> None:
        self.wait, self.cue, self.t = wait, cue, 0

    @property
    def state(self) -> State:
        return State((np.array([2 * self.cue - 1 if self.t == 0 else 0, self.t == self.wait], np.float32),))

    async def __call__(self, action: Array) -> Step:
        self.t += 1
        over = self.t > self.wait
        return Step(np.array([over and int(action[0]) == self.cue], np.float32), terminated=over)

    def result(self) -> Mapping[str, float]:
        return {}


class Alone:
    """A battle of sides that have nothing to do with each other, without tasks of its own."""

    def __init__(self, *sides: Any) -> None:
        self.controllers: Sequence[Controller] = sides

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
