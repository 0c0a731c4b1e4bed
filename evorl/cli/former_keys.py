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
SWITCHES = {
    "rl.prioritized": ("rl.sampling", {True: "prioritized", False: "uniform"}),
    "ec.tell_warm_up": ("ec.warm_up_actions", {True: "told", False: "uniform"}),
}
"""By former key, which was true or false: the key for it, and the value for each."""


def present_words(key: str, value: str, has: Callable[[str], bool]) -> str | None:
    """Return the words for a former key with its value; None for any other key.

    ``has`` says whether the run has a key.
    """
    if key in SWITCHES and has(SWITCHES[key][0]):
        new, names = SWITCHES[key]
        return f"{new}={','.join(names[choice.strip().lower() == 'true'] for choice in value.split(','))}"
    moved = (re.sub(pattern, new, key) for pattern, new in MOVED.items() if re.fullmatch(pattern, key))
    return next((f"{new}={value}" for new in moved if has(new)), None)
