"""Worlds: games, simulators and environments that a policy is trained on.

Start with `evorl.mdp.core`, the interface of a world (World, Spec, State, Step, Arena). `evorl.mdp.battle_arena` runs
worlds written as coroutines, `evorl.mdp.lockstep` vectorised ones; `evorl.mdp.conformance` tests a world. Each package
here is one world. Policies, training and evaluation are elsewhere (`evorl.rl`, `evorl.population`). Guide:
docs/write_a_world.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evorl.mdp.conformance import check as check


def __getattr__(name: str) -> Any:
    """Import ``evorl.mdp.check`` on first use, so that playing a world does not load its tests."""
    if name == "check":
        from evorl.mdp.conformance import check

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
