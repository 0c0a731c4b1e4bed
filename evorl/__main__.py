"""The command ``evorl``: run, evaluate, report or reproduce, by name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType

from evorl import __version__
from evorl.util.command import lacking
from evorl.util.errors import nearest_or_all
from evorl.util.stop import STOPS
from evorl.util.streams import ignore_write_errors
from evorl.util.text import say

COMMANDS = ("run", "evaluate", "report", "export", "play", "reproduce", "zoo", "new")
USAGE = """\
usage: evorl run [mdp=WORLD] [rl=ALGORITHM] [KEY=VALUE ...]   train; evorl run --help lists every choice and key
       evorl evaluate run=RUN_DIR [episodes=N] [video=true]   evaluate a run again
       evorl report RUN_DIR_OR_GLOB... [out=DIR] [live=true]  tables, curves and pictures of runs
       evorl export run=RUN_DIR out=policy.onnx               a policy for games and browsers
       evorl play run=RUN_DIR                                 play against a policy in the browser
       evorl reproduce [PAPER/TABLE profile=ci]               tables of papers, in a checkout
       evorl zoo [NAME]                                       trained policies, in a checkout
       evorl new KIND NAME                                    begin an algorithm, evolver, network, world, sampler"""


def main(words: Sequence[str] | None = None) -> int:
    """Run ``evorl`` with these arguments and return its exit code."""
    words = sys.argv[1:] if words is None else words
    if words and words[0] in ("-sc", "--shell-completion"):
        words = ["run", *words]
    ignore_write_errors()
    if words and words[0] in COMMANDS:
        _leave_at_once_on_signals()
        try:
            command = import_module(f"evorl.{words[0]}")
        except ModuleNotFoundError as error:
            if (error.name or "evorl").partition(".")[0] == "evorl":
                raise
            print(f"evorl: {lacking(error.name)}", file=sys.stderr)
            return 2
        code = int(command.main(list(words[1:])))
        for number in STOPS:  # all output is written: a signal during interpreter exit must not change the exit code
            signal.signal(number, signal.SIG_IGN)
        return code
    if words and words[0] in ("-h", "--help", "--version"):
        print(__version__ if words[0] == "--version" else USAGE)
        return 0
    if words:
        say(f"evorl: no command {words[0]!r}{nearest_or_all(words[0], COMMANDS)}", sys.stderr)
    else:
        print(USAGE, file=sys.stderr)
    return 2


def _leave_at_once_on_signals() -> None:
    """Exit at once on SIGINT and SIGTERM, without a traceback, until a run sets its own handlers.

    This also holds if the parent ignores them, as a shell does for background jobs of a script.
    """
    for number in STOPS:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # without buffers, which the signal may have interrupted
        os.write(2, f"evorl: ended by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
