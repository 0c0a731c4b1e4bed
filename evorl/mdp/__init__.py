"""Worlds: everything that hands out decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evorl.mdp.conformance import check as check


def __getattr__(name: str) -> Any:
    """``evorl.mdp.check``, fetched when it is used: what plays worlds need not load what tests them."""
    if name == "check":
        from evorl.mdp.conformance import check

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
