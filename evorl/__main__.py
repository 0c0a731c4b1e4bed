"""The command ``evorl``: its doors by name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

from evorl import __version__
from evorl.util.command import lacking
from evorl.util.streams import unheeded

DOORS = ("run", "evaluate", "report")
STOPS = (signal.SIGINT, signal.SIGTERM)
USAGE = """\
usage: evorl run [mdp=WORLD] [rl=ALGORITHM] [KEY=VALUE ...]   train; evorl run --help lists every choice and key
       evorl evaluate run=RUN_DIR [episodes=N] [video=true]   judge a run again
       evorl report RUN_DIR_OR_GLOB... [out=DIR]              tables and pictures of runs"""


def main(words: Sequence[str] | None = None) -> int:
    """Exit code of ``evorl`` with these arguments."""
    words = sys.argv[1:] if words is None else words
    unheeded()
    if words and words[0] in DOORS:
        _leave_at_once_on_signals()
        try:
            door = import_module(f"evorl.{words[0]}")
        except ModuleNotFoundError as error:
            if (error.name or "evorl").partition(".")[0] == "evorl":
                raise
            print(f"evorl: {lacking(error.name)}", file=sys.stderr)
            return 2
        code = int(door.main(list(words[1:])))
        for number in STOPS:  # all is said and written: the interpreter's own end must not change the exit code
            signal.signal(number, signal.SIG_IGN)
        return code
    if words and words[0] in ("-h", "--help", "--version"):
        print(__version__ if words[0] == "--version" else USAGE)
        return 0
    print(USAGE, file=sys.stderr)
    return 2


def _leave_at_once_on_signals() -> None:
    """Until a run sets handlers of its own there is nothing to save, and a traceback would tell nobody anything.

    Also where the parent ignores them, as a shell does for what a script starts in the background.
    """
    for number in STOPS:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
