"""What is compared on which world: the sweeps that the programs of this folder share, and the names of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evorl.analysis.runs import RunRecord
from evorl.reproduction.parts import ALONE, CLUSTER, Sweep
from evorl.reproduction.scores import score_text


class World(NamedTuple):
    title: str
    experiments: str
    """Their folder."""
    seeds: str
    every: float
    """Environment steps between evaluations."""
    digits: int
    """Of a return in the tables, after the point."""
    launcher: tuple[str, ...] = ALONE


WORLDS = {
    "vector_pong": World("Vector Pong", "elite_replay/vector_pong", "seed=1,2,3,4,5", 300_000, 1),
    "duel": World("Duel", "elite_replay/duel", "seed=1,2,3,4,5", 100_000, 2),
    "cartpole": World("CartPole", "elite_replay/cartpole", "seed=1,2,3,4,5", 10_000, 0),
    "breakout": World("Breakout, 5:5", "elite_replay", "seed=1,2,3", 100_000, 0, CLUSTER),
    "seaquest": World("Seaquest, 8:2", "elite_replay/seaquest", "seed=1,2,3", 100_000, 0, CLUSTER),
}
PROFILES = {"ci": ("vector_pong", "duel", "cartpole"), "paper": ("breakout", "seaquest")}
UNIFORM, ELITE = "uniform", {1: "elite, strategy 1", 3: "elite, strategy 3"}
COLOURS = {UNIFORM: "C0", ELITE[1]: "C1", ELITE[3]: "C2"}
BOTH = ("rl.sampling.uniform=0.25", "rl.sampling.elite=0.25")
"""A quarter of each minibatch by each rule, of the same rollouts and for the same policy."""

HALF = {"seaquest": ("rl.sampling.queue=0.5", "rl.sampling.uniform=0.5")}
"""What makes the replay half of a minibatch where the experiments have another share."""


def sweep(world: str, name: str, experiments: Sequence[str], *words: str) -> Sweep:
    """Some experiments of a world's folder, with its seeds."""
    case = WORLDS[world]
    chosen = "+experiment=" + ",".join(f"{case.experiments}/{experiment}" for experiment in experiments)
    own = ("record.tensorboard=false",)
    return Sweep(f"{world}_{name}", (case.seeds, chosen, *words, *own), case.launcher)


def uniform(world: str) -> Sweep:
    return sweep(world, "uniform", ["uniform"])


def elite(world: str) -> Sweep:
    return sweep(world, "elite", ["elite_1", "elite_3"])


def both(world: str) -> Sweep:
    return sweep(world, "both", ["elite_1", "elite_3"], *BOTH)


def half(world: str) -> Sweep:
    """Half of each minibatch by uniform sampling, as `uniform` has it on most worlds."""
    return sweep(world, "half", ["uniform"], *HALF[world]) if world in HALF else uniform(world)


def uncorrected(world: str) -> Sweep:
    """The same without correction."""
    return sweep(world, "uncorrected", ["uniform"], *HALF.get(world, ()), "rl.correction=none")


def world_of(run: RunRecord) -> str:
    """Its key in `WORLDS`."""
    if "atari" in run.choices["mdp"]:
        return str(run.config["mdp.game"])
    return {"pong": "vector_pong"}.get(run.choices["mdp"], run.choices["mdp"])


def rules(run: RunRecord) -> tuple[str, ...]:
    """How its replayed rollouts are chosen: one of `COLOURS`, or two."""
    share = {name: run.config[f"rl.sampling.{name}"] for name in ("uniform", "elite")}
    return tuple(
        UNIFORM if name == "uniform" else ELITE[run.config["rl.replay.elite.strategy"]]
        for name in share
        if share[name] > 0
    )


def ends(by_world: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The scores at the end, of what is compared on each world."""
    return "; ".join(
        f"{WORLDS[world].title}: "
        + ", ".join(f"{name} {score_text(scores['end'], WORLDS[world].digits)}" for name, scores in each.items())
        for world, each in by_world.items()
    )
