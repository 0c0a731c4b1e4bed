"""Plays the episodes that individuals are judged by: those of their fitness, and those that select the best of them."""

from __future__ import annotations

from collections.abc import Callable

from evorl.ec.core import Evolution, IndependentEvolution
from evorl.mdp.core import Array, World
from evorl.rl.core import Acting, Episode
from evorl.rl.evaluation import (
    EvaluationNoise,
    episodes_in_order,
    episodes_per_slot,
    in_whole_games,
    limited_arena,
    play_slots,
)
from evorl.training.experiment import Experiment
from evorl.training.train import errors_under_mdp
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest

SLOTS = 256  # approximate episodes at once; a constant, since it decides the last bits


def evaluation_world(world: World) -> World:
    """Return the world that evaluations play. Raises `BadRequest` where only that form of it refuses its keys."""
    try:
        return world.evaluation_world()
    except BadRequest:
        raise
    except ValueError as error:  # as for keys on the command line
        raise BadRequest(str(error)) from None


def fitness_episodes(seed: int, evolution: Evolution, width: int, ids: list[int]) -> seeds.Episodes:
    """Return the keys of ``width`` games per individual: common to all, or own ones (``ec.seeds``)."""
    common = evolution.seeds == "common"
    return seeds.Grouped(seed, evaluation=True, width=width, groups=tuple(
        "fitness" if common else f"fitness {number}" for number in ids
    ))  # fmt: skip


def play_keyed_episodes(
    world: World,
    learner: Acting,
    keys: seeds.Episodes,
    episodes: int,
    max_steps: int,
    *,
    deterministic: bool = True,
    count: Callable[[Array, Array], None] | None = None,
) -> list[Episode]:
    """Play the episodes with these keys, in whole games. ``count`` sees slots and actions.

    Raises `NotFinite`, and `BadRequest` for a world that cannot begin."""
    width = in_whole_games(world, min(episodes, SLOTS))
    with errors_under_mdp():
        arena = limited_arena(world, width, keys, max_steps)
    try:
        noise = EvaluationNoise(arena, int(keys(0, 0)), deterministic)  # as independent as the episodes are
        done = play_slots(arena, learner, noise, episodes_per_slot(episodes, width), count=count)
        return episodes_in_order(done, episodes)
    finally:
        arena.close()


def play_fitness_episodes(
    experiment: Experiment, learner: Acting, seed: int, evolution: IndependentEvolution, number: int
) -> list[Episode]:
    """Play the episodes that give individual ``number`` its fitness. Raises what `play_keyed_episodes` does."""
    with errors_under_mdp():
        world = evaluation_world(experiment.mdp)
    width = in_whole_games(world, min(evolution.episodes, SLOTS))
    keys = fitness_episodes(seed, evolution, width // world.sides, [number])
    return play_keyed_episodes(
        world, learner, keys, in_whole_games(world, evolution.episodes), experiment.eval.max_steps
    )
