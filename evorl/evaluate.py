"""The door that judges a finished or running experiment again.

    python -m evorl.evaluate run=RUN_DIR episodes=100 checkpoint=best video=true

An evaluation is a pure function of (checkpoint, world, seed, episodes): with the run's own seed and number of
episodes the numbers equal, bit for bit, what the run recorded for that checkpoint.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # as the command evorl, which minds signals while it starts
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["evaluate", *sys.argv[1:]]))

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evorl import config
from evorl.util.errors import BadRequest, nearest
from evorl.util.types import Count, Natural, Positive

if TYPE_CHECKING:
    import torch

    from evorl.experiment import Experiment
    from evorl.mdp.core import Arena, Array, World
    from evorl.rl.core import Learner


USAGE = "usage: python -m evorl.evaluate run=RUN_DIR [episodes=N] [checkpoint=best] [video=true]   (--help tells more)"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks for; each field is a key."""

    run: str
    """A run directory."""
    checkpoint: str = "latest"
    """latest, best, or a step that the run keeps."""
    episodes: Count | None = None
    """Evaluation games; null takes the run's own number."""
    seed: Natural | None = None
    """Of the evaluation's episodes; null takes the run's own."""
    device: Literal["auto", "cpu", "cuda"] | None = None
    """null takes the run's own, but the CPU for a run that asked for a GPU where there is none."""
    video: bool = False
    """Write a film of one episode into the run directory."""
    fps: Positive = 30.0
    trust: tuple[str, ...] = ()
    """Import roots outside evorl that the run's config may name."""


def main(argv: list[str] | None = None) -> int:
    """Exit code of ``evorl.evaluate`` with these arguments."""
    return config.door(lambda: evaluate(_asked(sys.argv[1:] if argv is None else argv)))


def _asked(words: Sequence[str]) -> Request:
    if not words:
        raise BadRequest(f"no run directory given; {USAGE}")
    return config.request(Request, words)


def evaluate(request: Request) -> None:
    run_dir = Path(request.run)
    experiment = config.stored(run_dir, request.trust)
    path, state = _checkpoint(run_dir, request.checkpoint)
    learner = _learner(experiment, state, _device(experiment, request.device))
    from evorl.rl.judge import fitness, judge

    episodes = request.episodes or experiment.eval.episodes
    seed = experiment.seed if request.seed is None else request.seed
    step = int(state["run"]["steps"])
    film = _film(experiment, learner, run_dir, step, seed, request.fps) if request.video else None
    metrics = judge(learner, experiment.mdp, seed, episodes)
    report = {
        "run": run_dir.name, "step": step, "seed": seed, "episodes": episodes,
        "fitness": fitness(metrics), **{name.removeprefix("eval/"): x for name, x in metrics.items()},
    }  # fmt: skip
    _print(report, path)
    if film is not None:
        print(f"video: {film}")
    print(json.dumps(report))


def _checkpoint(run_dir: Path, which: str) -> tuple[Path, dict[str, Any]]:
    from evorl.record import checkpoint

    kept = [str(step) for step in checkpoint.steps(run_dir)]
    if which == "latest":
        found = checkpoint.newest(run_dir)
        if found is None:
            raise BadRequest(f"{run_dir} holds no checkpoint", "run")
        return found
    if which == "best":
        newest = checkpoint.newest(run_dir)
        best = None if newest is None else newest[1]["run"]["best"]
        if best is None:
            raise BadRequest(f"{run_dir} has judged nothing yet", "checkpoint")
        which = str(best[1])
    if which not in kept:
        choices = ["latest", "best", *kept]
        raise BadRequest(f"{which!r} is none of {', '.join(choices)}{nearest(which, choices)}", "checkpoint")
    path = run_dir / "checkpoints" / which
    return path, checkpoint.load(path)


def _device(experiment: Experiment, asked: str | None) -> torch.device:
    from evorl.train import device

    return device(asked or ("cpu" if experiment.device == "cpu" else "auto"))


def _learner(experiment: Experiment, state: dict[str, Any], device: torch.device) -> Learner:
    arena = _game(experiment.mdp.judge(), experiment.seed)
    try:
        learner = experiment.rl.learner(arena.spec, experiment.seed, device)
    finally:
        arena.close()
    learner.load_policy(state["run"]["learner"])
    return learner


def _game(world: World, seed: int) -> Arena:
    """The first evaluation episode of a seed."""
    from evorl.util.seed import Episodes

    return world.arena(world.sides, Episodes(seed, "evaluate", evaluation=True))


def _print(report: dict[str, Any], path: Path) -> None:
    print(f"{path}: {report['episodes']} episodes of seed {report['seed']}")
    for name, number in report.items():
        if isinstance(number, float):
            print(f"  {name:28} {number:10.3f}")


def _film(experiment: Experiment, learner: Learner, run_dir: Path, step: int, seed: int, fps: float) -> Path:
    """Film the first evaluation episode of the deterministic policy."""
    from evorl.record.video import write_video

    arena = _game(experiment.mdp.judge(), seed)
    try:
        frames = _frames(arena, learner)
        first = next(frames)  # a world that draws nothing says so before anything is written
        (run_dir / "videos").mkdir(exist_ok=True)
        return write_video(run_dir / "videos" / f"{step}", chain([first], frames), fps)
    finally:
        arena.close()


def _frames(arena: Arena, learner: Learner) -> Iterator[Array]:
    """What is seen before each decision of one game, and where the arena shows it, how the game ended."""
    import torch

    from evorl.mdp.core import Filmed
    from evorl.nets.distributions import noise_size
    from evorl.rl.actor import Player

    player = Player(arena, learner)
    still = torch.zeros(arena.slots, noise_size(arena.spec.action))
    end: list[Array | None] = []
    if isinstance(arena, Filmed):
        arena.at_end = lambda: end.append(arena.render(0))
    over = False
    while not over:
        frame = arena.render(0)
        if frame is None:
            raise BadRequest("this world draws no pictures", "video")
        yield frame
        player.send(player.now.slots, player.decide(still))
        over = bool(player.recv()[1])
    yield from (frame for frame in end[-1:] if frame is not None)
