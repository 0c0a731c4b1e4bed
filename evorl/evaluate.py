"""The command that evaluates a finished or running experiment again.

    python -m evorl.evaluate run=RUN_DIR episodes=100 checkpoint=best video=[best,median]
    python -m evorl.evaluate run=RUN_DIR individual=12
    python -m evorl.evaluate run=RUN_DIR export=DIR
    python -m evorl.evaluate run=RUN_DIR policy=sb3:FILE.zip   (another library's policy in the world of the run)
    python -m evorl.evaluate matrix=true players=[RUN_DIR,RUN_DIR@best,rule]   (matrix=true --help tells more)

For a population, the best individual is evaluated, or another one that the checkpoint holds.

An evaluation is a pure function of (checkpoint, world, seed, episodes). With the run's own seed and number of episodes,
the numbers equal those that the run recorded for that checkpoint, bit for bit.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["evaluate", *sys.argv[1:]]))

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from evorl.cli import config
from evorl.cli.overrides import format_value
from evorl.jobs.saved_policies import checkpoint_of, evaluated_by, learner_of, own_evaluation, own_game, saved_policy
from evorl.matches import command
from evorl.record import run_names
from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.names import check_can_be_made, check_names_directory
from evorl.util.numbers import format_number
from evorl.util.text import as_json, printable, say
from evorl.util.types import Count, Natural, Positive

if TYPE_CHECKING:
    import torch

    from evorl.ec.core import Individual
    from evorl.mdp.core import World
    from evorl.population.evaluation_plan import EvaluationPlan
    from evorl.rl.core import Episode, Learner, Metrics
    from evorl.rl.films import Film
    from evorl.training.experiment import Experiment
    from evorl.util.types import StateDict

Which = Literal["best", "median"]
USAGE = "usage: python -m evorl.evaluate run=RUN_DIR [episodes=N] [checkpoint=best] [video=true]   (--help tells more)"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The keys of the command line."""

    run: str
    """A run directory, or latest for the one below runs/ that began last; every command needs it."""
    checkpoint: str = "latest"
    """latest or last, best, or a step that the run keeps."""
    individual: Natural | str | None = None
    """For a population: best, or the id of an individual that the checkpoint holds; null is the best."""
    policy: str | None = None
    """sb3:FILE.zip or cleanrl:FILE: a policy of that library plays in the run's world, in place of the run's own."""
    episodes: Count | None = None
    """Evaluation games; null takes the run's own number."""
    seed: Natural | None = None
    """Seed of the evaluation's episodes; null takes the run's own."""
    device: Literal["auto", "cpu", "cuda"] | None = None
    """auto, cpu or cuda; null takes the run's own, or the CPU if the run used a GPU and there is none here."""
    video: bool | Which | tuple[Which, ...] = False
    """Films of episodes, into the run directory: true is the first one; best, median, or both as [best,median]."""
    export: str | None = None
    """A new directory for the evaluated policy: a small run, which evaluate and init= take."""
    fps: Positive | None = None
    """Environment steps that a film shows in a second; null: the game's own speed."""
    json: bool = False
    """Print the numbers once more at the end, unrounded, as a line of JSON."""
    trust: tuple[str, ...] = ()
    """Root modules outside evorl that the run's config may import."""

    def __post_init__(self) -> None:
        if self.fps is not None and not self.video:
            raise BadRequest("is of films; add video=true", "fps")


def main(argv: list[str] | None = None) -> int:
    """Run ``evorl.evaluate`` with these arguments and return its exit code."""
    return config.command_line(_command, argv)


def _command(words: Sequence[str]) -> None:
    if command.asks_for_matrix(words):
        command.command(words)
    else:
        evaluate(_request(words))


def _request(words: Sequence[str]) -> Request:
    if not words:
        raise BadRequest(f"no run directory given; {USAGE}")
    return config.parse_request(Request, words)


def evaluate(request: Request) -> None:
    run_dir = Path(run_names.named(request.run, "run"))
    target = None if request.export is None else _target(request.export)
    experiment = config.experiment_of_run(run_dir, request.trust)
    if request.video and not os.access(run_dir, os.W_OK | os.X_OK):
        raise BadRequest(f"{run_dir} cannot be written, where films go", "video")
    with ExitStack() as opened:
        opened.callback(experiment.mdp.close)
        judged_policy = _own(experiment, run_dir, request) if request.policy is None else _foreign(experiment, request)
        if judged_policy is None:
            return
        if judged_policy.world is not experiment.mdp:
            opened.callback(judged_policy.world.close)
        _judge(judged_policy, experiment, run_dir, target, request)


def _judge(
    judged_policy: _Judged, experiment: Experiment, run_dir: Path, target: Path | None, request: Request
) -> None:
    """Play the episodes; print, film and export what comes of them."""
    if request.video and not experiment.mdp.draws:
        raise BadRequest("this world draws no pictures", "video")
    learner, path, step, who, name, policy, world, numbers = judged_policy
    from evorl.rl.evaluation import fitness, in_whole_games, judged, play_episodes, progress_shown
    from evorl.rl.films import film

    episodes = in_whole_games(world.evaluation_world(), request.episodes or experiment.eval.episodes)
    seed = experiment.seed if request.seed is None else request.seed
    how_many = episodes, experiment.eval.max_steps
    with progress_shown(partial(print, file=sys.stderr, flush=True)):
        played = partial(play_episodes, learner, world, seed, *how_many)
        still = played(deterministic=True) if numbers is None or request.video else []
        drawn = played(deterministic=False) if numbers is None else []
    films = [
        _write(film(learner, world, seed, number, *how_many, request.fps), run_dir / "videos" / f"{name}{of}")
        for of, number in _filmed(request.video, still).items()
    ]
    metrics = judged(still, drawn) if numbers is None else numbers
    report = {
        "run": run_dir.name, "step": step, **who, "seed": seed, "episodes": episodes,
        "fitness": fitness(metrics), **{name.removeprefix("eval/"): x for name, x in metrics.items()},
    }  # fmt: skip
    _print(report, path)
    _print_films(films)
    if target is not None:
        from evorl.jobs.exported import export

        export(target, run_dir, policy, report)
        say(f"exported: {target}")
    if request.json:
        print(as_json(report))


class _Judged(NamedTuple):
    """The policy that is evaluated."""

    learner: Learner
    path: Path
    step: int
    who: dict[str, Any]
    """What distinguishes it from the run's usual policy."""
    name: str
    """Of its films."""
    policy: StateDict
    """Its state, to export."""
    world: World
    """In which it is judged: of an individual with a game of its own, that game."""
    numbers: Metrics | None = None
    """What evaluated it, where its episodes in the world do not."""


def _own(experiment: Experiment, run_dir: Path, request: Request) -> _Judged | None:
    """The policy of the run's checkpoint; None for an individual of a problem, which is evaluated here."""
    path, run = checkpoint_of(run_dir, request.checkpoint)
    step = int(run["steps"])
    seed = experiment.seed if request.seed is None else request.seed
    how_many = replace(experiment.eval, episodes=request.episodes or experiment.eval.episodes)
    asked = replace(experiment, seed=seed, eval=how_many)
    saved = evaluated_by(saved_policy(experiment, path, run, request.individual), asked, run)
    policy, individual, how = saved
    if individual is not None and how is not None and how.learner is None:
        if request.export is not None:
            raise BadRequest("a problem has no policy", "export")
        _evaluate_point(individual, how, run_dir, step, request)
        return None
    who = {} if individual is None else {"individual": individual.id}
    if policy is None:
        raise BadRequest(f"{path} holds no policy", "run")
    learner = learner_of(experiment, policy, _device(experiment, request.device), path)
    name = "-".join(map(str, [step, *who.values()])) if request.individual is not None else f"{step}"
    game = own_game(experiment, saved)
    if game is None:
        return _Judged(learner, path, step, who, name, policy, experiment.mdp)
    if request.export is not None:
        raise BadRequest(
            "the policy plays in a game of its own, which no exported run has; evorl.export exports it", "export"
        )
    return _Judged(learner, path, step, who, name, policy, game, own_evaluation(saved))


def _foreign(experiment: Experiment, request: Request) -> _Judged:
    """The policy of another library."""
    import torch

    from evorl.jobs.foreign_policies import LIBRARIES, foreign_learner, is_foreign
    from evorl.training.train import spec

    word = str(request.policy)
    if not is_foreign(word):
        raise BadRequest(f"expected {' or '.join(f'{library}:FILE' for library in LIBRARIES)}, got {word}", "policy")
    for key in ("individual", "export", "checkpoint", "device"):
        if getattr(request, key) != getattr(Request(run=""), key):
            raise BadRequest("is of the run's own policies; leave policy= out", key)
    torch.set_num_threads(experiment.rl.threads)
    learner = cast("Learner", foreign_learner(word, spec(experiment.mdp.evaluation_world()), "policy"))
    path = Path(word.partition(":")[2])
    name = word.partition(":")[0] + "-" + path.stem
    return _Judged(learner, path, 0, {"policy": word}, name, {}, experiment.mdp)


def _target(export: str) -> Path:
    """The directory to export to. Raises `BadRequest` unless it is new or empty."""
    makes = "a directory with the config, the weights (safetensors) and evaluation.json"
    check_names_directory(export, makes, "export")
    place = Path(export)
    check_can_be_made(place, place.absolute().parents, "export")
    if place.resolve() == Path.cwd():
        raise BadRequest("the working directory cannot be replaced; name a new one", "export")
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise BadRequest(f"{place} is not empty, and nothing is ever overwritten", "export")
    return place


def _evaluate_point(individual: Individual, how: EvaluationPlan, run_dir: Path, step: int, request: Request) -> None:
    """Evaluate an individual of a problem; it has no policy."""
    from evorl.ec.core import pack
    from evorl.population.results import IndividualResult

    if request.video:
        raise BadRequest("a problem has no policy to film", "video")
    for key in ("episodes", "seed", "device", "fps"):
        if getattr(request, key) is not None:
            raise BadRequest("a problem has no episodes", key)
    answer = IndividualResult(*how.make(0).evaluate(pack([individual])).each[0])
    objectives = dict(zip(how.objective_names, answer.objectives, strict=True))
    say(f"{run_dir}: individual {individual.id}")
    for name, number in objectives.items():
        say(f"  {name:28} {format_number(number):>10}")
    genes = how.space.values(individual.genes)
    for name, value in genes.items():
        say(f"  {name:28} {format_value(value)}")
    if request.json:
        about = {"run": run_dir.name, "step": step, "individual": individual.id}
        print(as_json({**about, **objectives, "genes": genes}))


def _device(experiment: Experiment, name: str | None) -> torch.device:
    from evorl.training.train import device

    return device(name or ("cpu" if experiment.device == "cpu" else "auto"))


def _print_films(films: Sequence[tuple[Path, str]]) -> None:
    """Print the file of each film, and the agent's side in it where the world names its sides."""
    for path, agent in films:
        say(f"video: {path}")
        if agent:
            say(f"the agent in it is {agent}")


def _print(report: dict[str, Any], path: Path) -> None:
    who = f"individual {report['individual']}, " if "individual" in report else ""
    say(f"{path}: {who}{report['episodes']} episode{'s' * (report['episodes'] != 1)} of seed {report['seed']}")
    for name, number in report.items():
        if isinstance(number, float):
            say(f"  {printable(name):28} {format_number(number):>10}")


def _filmed(choice: bool | Which | tuple[Which, ...], episodes: Sequence[Episode]) -> dict[str, int]:
    """The numbers of the episodes to film, by what the names of their films end with."""
    from evorl.rl.films import chosen

    if isinstance(choice, bool):
        return {"": 0} if choice else {}
    which = (choice,) if isinstance(choice, str) else choice
    return {f"-{name}": number for name, number in chosen(which, episodes).items()}


def _write(film: Film, path: Path) -> tuple[Path, str]:
    """Write a film; return its file and the agent's side."""
    from evorl.record.video import write_video

    first = next(film.frames)  # a world without pictures raises here, before anything is written
    run_directory.make_folder(path.parent.parent, path.parent.name)
    caption = f"agent: {film.agent}" if film.agent else ""
    return write_video(path, chain([first], film.frames), film.fps, caption), film.agent
