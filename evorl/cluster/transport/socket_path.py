"""Where sockets can lie: Linux allows the path of one 107 bytes."""

from __future__ import annotations

import os
import tempfile

LONGEST = 107  # bytes of a socket's path


def shallow(below: str, usual: str | None = None) -> str:
    """The ``usual`` folder for temporary files, or /tmp where a socket ``below`` it would have too long a path."""
    place = usual or tempfile.gettempdir()
    return place if len(os.fsencode(os.path.join(place, below))) <= LONGEST else "/tmp"
