"""Completion of command lines in a shell: ``eval "$(evorl -sc install=bash)"`` completes ``evorl run``.

Hydra's scripts call ``evorl -sc query=bash`` with the line so far in the environment variable COMP_LINE.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from evorl.cli.hydra_internals import Hydra, show_info
from evorl.util.errors import BadRequest, nearest

COMMANDS = ("run", "evaluate", "report", "export", "play", "reproduce", "zoo", "new")
ACTIONS = ("install", "uninstall", "query")
SHELLS = ("bash", "fish", "zsh")


def complete(hydra: Hydra, args: argparse.Namespace, parser: argparse.ArgumentParser, name: str) -> None:
    """Print the script that installs completion, or the words that fit. Raises `BadRequest`."""
    action = _check(args.overrides)
    line = os.environ.get("COMP_LINE")
    if action == "query":
        if line is None:
            raise BadRequest("is for the shell, which gives the line in COMP_LINE; type install=bash", "query")
        words = line.split()
        if len(words) < 2 or (len(words) == 2 and not line.endswith(" ") and words[1] not in COMMANDS):
            print(" ".join(COMMANDS))
            return
        if words[1] != "run":  # the others take run directories, which the shell completes
            return
        os.environ["COMP_LINE"] = line.replace(" run", "", 1)
    before = sys.argv[0]
    try:
        sys.argv[0] = "evorl"  # the program that Hydra completes
        show_info(hydra, args, parser, name)
    finally:
        sys.argv[0] = before
        if line is not None:
            os.environ["COMP_LINE"] = line


def _check(words: Sequence[str]) -> str:
    """Return the action. Raises `BadRequest` unless the words are one action and a shell."""
    action, _, shell = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if action not in ACTIONS:
        raise BadRequest(f"takes one of install=SHELL, uninstall=SHELL{nearest(action, ACTIONS)}", "--shell-completion")
    if shell not in SHELLS:
        raise BadRequest(f"{shell!r} is none of {', '.join(SHELLS)}{nearest(shell, SHELLS)}", action)
    return action
