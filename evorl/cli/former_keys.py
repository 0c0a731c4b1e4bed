"""Keys that evorl had under other names, and the words for them today."""

from __future__ import annotations

import re
from collections.abc import Callable

MOVED = {
    r"rl\.replay\.(\w+)\.share": r"rl.sampling.\1",
    r"rl\.(attentive\b.*)": r"rl.replay.\1",
    r"rl\.(alpha|beta|eta)\b(.*)": r"rl.replay.prioritized.\1\2",
}
"""By pattern of a former key: the key that takes the same values."""


def present_words(key: str, value: str, has: Callable[[str], bool]) -> str | None:
    """Return the words for a former key with its value; None for any other key.

    ``has`` says whether the run has a key.
    """
    if key == "rl.prioritized" and has("rl.sampling"):
        names = ("prioritized" if choice.strip().lower() == "true" else "uniform" for choice in value.split(","))
        return f"rl.sampling={','.join(names)}"
    moved = (re.sub(pattern, new, key) for pattern, new in MOVED.items() if re.fullmatch(pattern, key))
    return next((f"{new}={value}" for new in moved if has(new)), None)
