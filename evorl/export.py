"""The command that writes a trained policy as one file for a game, a browser or a phone.

    python -m evorl.export run=RUN_DIR out=policy.onnx
    python -m evorl.export run=RUN_DIR out=policy.onnx format=unity checkpoint=best
    python -m evorl.export run=RUN_DIR out=policy.pt2 format=torch deterministic=false
    python -m evorl.export run=RUN_DIR out=policy.zip format=sb3

The file holds the weights, the normalisation of inputs, and a description of its inputs and outputs (docs/export.md).
Before it is written it plays whole episodes beside the run's own policy: their numbers agree to 1e-5, or there is no
file. `evorl.inference.graph` writes ONNX.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["export", *sys.argv[1:]]))

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evorl import __version__
from evorl.cli import config
from evorl.jobs.saved_policies import LoadedPolicy, loaded_policy
from evorl.record import provenance, run_names
from evorl.util import command, files, run_directory
from evorl.util.errors import BadRequest, Failure
from evorl.util.names import check_can_be_made, check_names
from evorl.util.text import as_json, say
from evorl.util.typed import completed
from evorl.util.types import Count, Natural

if TYPE_CHECKING:
    from evorl.inference.check import Compared
    from evorl.inference.module import PolicyModule
    from evorl.inference.side import OfSide
    from evorl.inference.units import Encode
    from evorl.mdp.core import World
    from evorl.rl.core import Episode
    from evorl.rl.network_learner import NetworkLearner
    from evorl.training.experiment import Experiment

USAGE = "usage: python -m evorl.export run=RUN_DIR out=policy.onnx [format=unity]   (--help tells more)"
SUFFIXES = {
    "onnx": ".onnx", "unity": ".onnx", "godot": ".onnx", "torch": ".pt2", "sb3": ".zip", "cleanrl": ".cleanrl_model",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Request:
    """The keys of the command line."""

    run: str
    """A run directory, or latest for the one below runs/ that began last."""
    out: str
    """The file to write, which must not be there: .onnx; .pt2 with format=torch, .zip with sb3, .cleanrl_model."""
    format: Literal["onnx", "unity", "godot", "torch", "sb3", "cleanrl"] = "onnx"
    """onnx for any runtime; unity and godot with the names that ML-Agents and Godot RL Agents load; torch.export; sb3
    and cleanrl as Stable-Baselines3 and CleanRL save their own."""
    deterministic: bool = True
    """The most likely action; false: an action drawn by noise, which is an input then."""
    side: Natural | None = None
    """The side whose network it is, where each has its own (rl.policies)."""
    checkpoint: str = "latest"
    """latest or last, best, or a step that the run keeps."""
    individual: Natural | str | None = None
    """For a population: best, or the id of an individual that the checkpoint holds; null is the best."""
    episodes: Count = 4
    """Episodes in which the file plays beside the policy before it is written."""
    seed: Natural | None = None
    """Seed of these episodes; null takes the run's own."""
    json: bool = False
    """Print the file's description at the end, as a line of JSON."""
    trust: tuple[str, ...] = ()
    """Root modules outside evorl that the run's config may import."""


def main(argv: list[str] | None = None) -> int:
    """Run ``evorl.export`` with these arguments and return its exit code."""
    return config.command_line(_command, argv)


def _command(words: Sequence[str]) -> None:
    if not words:
        raise BadRequest(f"no run directory given; {USAGE}")
    export(config.parse_request(Request, words))


def export(request: Request) -> None:
    target = _target(request)
    _check_installed(request)
    run_dir = Path(run_names.named(request.run, "run"))
    experiment = config.experiment_of_run(run_dir, request.trust)
    with ExitStack() as opened:
        opened.callback(experiment.mdp.close)
        loaded = loaded_policy(experiment, run_dir, request.checkpoint, request.individual)
        if loaded.game is not None:
            opened.callback(loaded.game.close)
            experiment = replace(experiment, mdp=loaded.game)
        _export(loaded, experiment, run_dir, target, request)


def _export(loaded: LoadedPolicy, experiment: Experiment, run_dir: Path, target: Path, request: Request) -> None:
    """Write the file, once it has decided as the policy does."""
    _, step, learner, individual, game = loaded
    import torch

    from evorl.inference.check import Compared
    from evorl.inference.file import description, policy_file, program
    from evorl.inference.units import environment_units
    from evorl.rl.evaluation import summary
    from evorl.rl.network_learner import with_network

    world, whole = experiment.mdp.evaluation_world(), with_network(learner, "evorl.export", "run")
    side = _side(request, whole)
    own = whole if side is None else side.learner
    encode = environment_units(world, whole.spec, own.spec.action, request.side)
    module = _module(request, own, encode)
    made = policy_file(module, request.format)
    about = {
        "opset": made.opset(), "evorl": __version__, "torch": torch.__version__,
        "run": run_dir.name, "step": step, **({} if individual is None else {"individual": individual.id}),
        **({} if side is None else {"side": request.side}),
        **_origin(run_dir, experiment, game),
    }  # fmt: skip
    described = description(module, request.format, world, about)
    run = program(made.content(described), module, request.format)
    compared = Compared(whole, module, run, side, encode)
    episodes = _played(request, compared, experiment)
    check = {"decisions": compared.decisions, "largest_difference": compared.difference, "wrong": compared.wrong}
    if not compared.agrees:
        raise Failure(f"the file does not decide as the policy does, so it is not written: {check}{_why(request, own)}")
    if not compared.decisions:
        raise BadRequest(f"evaluations of this run never play side {request.side}, so nothing can be compared", "side")
    described["check"] = {
        "episodes": len(episodes),
        "return_mean": summary([episode.ret for episode in episodes])["mean"],
        **check,
    }
    content = made.content(described)
    files.replace(target, content)
    _print(target, described, len(content))
    if request.json:
        print(as_json(described))


def _why(request: Request, learner: NetworkLearner[Any]) -> str:
    """What may part a file from its policy; empty where nothing is known."""
    if learner.moments is None or not learner.moments.whiten or request.format not in ("sb3", "cleanrl", "unity"):
        return ""
    return "; rl.normalize_inputs=whiten needs float64, which this format has not: format=onnx and torch have it"


def _target(request: Request) -> Path:
    """The file to write. Raises `BadRequest`."""
    place, suffix = Path(request.out), SUFFIXES[request.format]
    if place.suffix != suffix:
        right = place.with_suffix(suffix) if place.name else f"policy{suffix}"
        raise BadRequest(f"format={request.format} makes a file with the suffix {suffix}: out={right}", "out")
    if os.path.lexists(place):
        raise BadRequest(f"{place} is there, and nothing is ever overwritten", "out")
    check_names(place.absolute().parent, "the directory", "out")
    if not place.absolute().parent.is_dir():
        raise BadRequest(f"there is no directory {place.parent}", "out")
    check_can_be_made(place, [place.absolute().parent], "out")
    return place


def _check_installed(request: Request) -> None:
    """Raise `BadRequest` where a package is missing."""
    from importlib.util import find_spec

    needed = ("onnx", "onnxruntime") if SUFFIXES[request.format] == ".onnx" else ()
    if missing := [name for name in needed if find_spec(name) is None]:
        raise BadRequest(f"needs {missing[0]}: {command.install('export')}", "format")


def _side(request: Request, learner: NetworkLearner[Any]) -> OfSide | None:
    """The side that the file is of; None for a network of all sides. Raises `BadRequest`."""
    from evorl.inference.side import of_side
    from evorl.nets.per_side import PolicyPerSide

    several = isinstance(learner.policy, PolicyPerSide)
    if several and request.side is None:
        raise BadRequest("this run has a network for each side (rl.policies), and a file holds one: side=0", "side")
    if not several and request.side is not None:
        raise BadRequest("this run has one network for all sides", "side")
    return None if request.side is None else of_side(learner, request.side)


def _module(request: Request, learner: NetworkLearner[Any], encode: Encode) -> PolicyModule:
    """The policy with the inputs and outputs of the format. Raises `BadRequest` where it does not have them."""
    from evorl.inference.godot import GodotModule
    from evorl.inference.module import PolicyModule
    from evorl.inference.units import start_of
    from evorl.inference.unity import UnityModule

    why = {
        "unity": "a file for Unity has both actions, and the behaviour's Deterministic Inference chooses",
        "godot": "the plugin of Godot takes the most likely action; format=onnx has noise as an input",
        "sb3": "the file has the whole policy, and predict(..., deterministic=...) chooses there",
        "cleanrl": "the file has the whole policy, and the program chooses",
    }
    if request.format in why and not request.deterministic:
        raise BadRequest(why[request.format], "deterministic")
    start = start_of(encode, learner.spec.action)
    if request.format in why and any(start):
        told = ", ".join(map(str, start))
        raise BadRequest(
            f"the environment counts its choices from {told}, and {request.format} from 0; format=onnx has its numbers",
            "format",
        )
    if request.format == "unity":
        return UnityModule(learner)
    return GodotModule(learner) if request.format == "godot" else PolicyModule(learner, request.deterministic, start)


def _origin(run_dir: Path, experiment: Experiment, game: World | None) -> dict[str, Any]:
    """Where the policy comes from: the run's seed, world and algorithm, and the commit that trained it.

    ``game``: the world of the policy alone, where the run has one for each.
    """
    whole = config.read_run_config(run_dir, "run")
    world = whole["mdp"] if game is None else completed({"_target_": whole["mdp"]["_target_"]}, game)
    try:
        known = run_directory.read_json(run_dir, provenance.FILE_NAME)
        trained = {name: known.get(name) for name in ("git", "versions")}
    except (OSError, ValueError, AttributeError):
        trained = {}
    return {"seed": experiment.seed, "mdp": world, "rl": whole["rl"], "provenance": trained}


def _played(request: Request, compared: Compared, experiment: Experiment) -> list[Episode]:
    """Play the file beside the policy."""
    from evorl.rl.evaluation import progress_shown

    seed = experiment.seed if request.seed is None else request.seed
    how_many = request.episodes, experiment.eval.max_steps
    with progress_shown(partial(say, stream=sys.stderr)):
        return compared.play_games(experiment.mdp, seed, *how_many, deterministic=request.deterministic)


def _print(target: Path, described: dict[str, Any], size: int) -> None:
    opset = f", opset {described['opset']}" if described["opset"] else ""
    say(f"{target}: {size:,} bytes, format={described['format']}{opset}")
    for kind in ("inputs", "outputs"):
        for port in described[kind]:
            shape = ", ".join(map(str, (*(() if port["role"] == "constant" else ("batch",)), *port["shape"])))
            say(f"  {kind[:-1]:7} {port['name']:34} {port['dtype']:8} [{shape}]")
    check = described["check"]
    say(
        f"beside the policy in {check['decisions']:,} decisions of {check['episodes']} episodes: "
        f"largest difference {check['largest_difference']:.1e}"
    )
