"""How the episodes of a world begin: with what the keys of any world put around its own arena."""

from __future__ import annotations

from evorl.mdp.core import Arena, World
from evorl.mdp.frame_skip import SkippingArena, bounds
from evorl.mdp.result_features import ResultFeatures
from evorl.mdp.told_side import ToldSides
from evorl.mdp.wrapped_arena import around
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes


def begin(world: World, slots: int, episodes: Episodes) -> Arena:
    """Start ``slots`` episodes, as `World.arena` does. Raises `BadRequest`."""
    skip = _skip(world)
    arena = world.arena(slots, episodes)
    if world.features:
        arena = _with_results(arena, world.features)
    if skip != (1, 1):
        arena = around(SkippingArena, arena)(arena, episodes, skip, world.skip_gamma)
    if world.tell_side and arena.spec.players > 1 and not arena.spec.who:
        arena = around(ToldSides, arena)(arena, world, episodes)
    return arena


def _with_results(arena: Arena, names: tuple[str, ...]) -> Arena:
    try:
        return around(ResultFeatures, arena)(arena, names)
    except BaseException:
        arena.close()
        raise


def _skip(world: World) -> tuple[int, int]:
    """How often actions are repeated around the world's arena. Raises `BadRequest`."""
    if not declares(world, "frame_skip"):
        return bounds(world.frame_skip)
    if world.skip_gamma != 1 and not declares(world, "skip_gamma"):
        raise BadRequest("the rewards of a repeat are summed in this world", "skip_gamma")
    return 1, 1


def declares(world: World, key: str) -> bool:
    """Whether the world's own class has this key of any world: then its arena does what the key says."""
    return any(key in vars(kind).get("__annotations__", {}) for kind in type(world).__mro__ if kind is not World)
