"""A process of a game that evorl starts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from evorl.mdp.remote.messages import Unplayable
from evorl.util.errors import BadRequest, nearest
from evorl.util.parents import ending, exit_status, kill_group, with_parent
from evorl.util.text import printable

CLIENTS = next(p for p in (Path(__file__).parents[2] / "clients", Path(__file__).parents[3] / "clients") if p.exists())
"""The clients in other languages, and their examples: within the package in a wheel, beside it in a checkout."""
FIXED = {"python": sys.executable, "clients": CLIENTS}
"""What any command may name in braces."""
NAMES = (*FIXED, "address", "host", "port", "seed")
"""What a command may name of its own process, too."""
INTERPRETER = re.compile(r"(python|pypy|node|nodejs|mono|bash|sh)[0-9.]*")
"""Names of programs that run a file, which must be there."""
SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".exe", ".sh")
"""How the names of such files end."""
FLAG = re.compile(r"-\w*[^\Wcmerp]")
"""Their options before a file, such as ``-u``. Others (``-c``, ``-m``, ``-r``, ``--import``) may take the next word."""
KEPT = 4096
"""Bytes of a game's output that are kept."""
LINES = 40
"""Of these, most lines that are shown when it ends."""


class GameProcess:
    """Started at once; it ends with evorl. What it prints is kept for messages. Raises `Unplayable`."""

    def __init__(self, command: str, values: Mapping[str, object], token: str, number: int) -> None:
        self.token, self.number, self.began = token, number, time.monotonic()
        self.greeted = False  # it has connected
        self._status: int | None = None  # its return code, once `end` has found it ended
        self._output = bytearray()
        words = [filled(word, {**FIXED, **values}) for word in shlex.split(command)]
        environment = {f"EVORL_{name.upper()}": str(value) for name, value in values.items()}
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "EVORL_TOKEN": token}, start_new_session=True,
                preexec_fn=with_parent(),
            )  # fmt: skip
        except OSError as error:
            raise Unplayable(f"mdp.command: {printable(words[0])} cannot be started: {error.strerror}") from None
        assert self._process.stdout is not None
        self.pipe = self._process.stdout.fileno()
        os.set_blocking(self.pipe, False)

    @property
    def name(self) -> str:
        return f"game {self.number} (process {self._process.pid})"

    def drain(self) -> bool:
        """Read what it has printed; return False once there will be no more."""
        with suppress(BlockingIOError):
            while data := os.read(self.pipe, KEPT):
                self._output += data
                del self._output[:-KEPT]
            return False
        return True

    def end(self, wait: float = 0.0) -> str | None:
        """Say how it ended, in one line; None if it still runs after ``wait`` seconds."""
        self._status = exit_status(self._process, wait)
        if self._status is None:
            return None
        with suppress(OSError, ValueError):
            self.drain()
        return ending(self._status, bytes(self._output))

    def last_lines(self) -> list[str]:
        """The last of what it printed, after `end`; none if it still runs or was killed."""
        if self._status is None or self.was_killed:
            return []
        return self._output.decode(errors="replace").strip().splitlines()[-LINES:]

    @property
    def was_killed(self) -> bool:
        """Whether a signal has ended it, after `end`."""
        return (self._status or 0) < 0

    def close(self) -> None:
        assert self._process.stdout is not None
        kill_group(self._process)
        self._process.stdout.close()


def filled(word: str, values: Mapping[str, object]) -> str:
    """A word of a command with ``{port}`` and the like filled in."""
    for name, value in values.items():
        word = word.replace("{" + name + "}", str(value))
    return word


def check_command(command: str) -> None:
    """Raise `BadRequest` for a command that cannot be started here."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadRequest(f"{command!r} is no command: {error}", "command") from None
    if not words:
        raise BadRequest("is empty; null waits for games that are started otherwise", "command")
    for name in re.findall(r"\{(\w+)\}", command):
        if name not in NAMES and (meant := nearest(name, NAMES)):
            raise BadRequest(f"{{{name}}} is not filled in{meant}", "command")
    program, *rest = [filled(word, FIXED) for word in words]
    if shutil.which(program) is None:
        if Path(program).is_file():
            raise BadRequest(f"{program} cannot be executed; name what runs it, as in {{python}} {program}", "command")
        raise BadRequest(f"there is no program {program} here", "command")
    script = next((word for word in rest if not FLAG.fullmatch(word)), "")
    named = script.endswith(SCRIPTS) and not script.startswith("-") and "{" not in script
    if named and INTERPRETER.fullmatch(Path(program).name) and not Path(script).exists():
        raise BadRequest(f"there is no file {script} here", "command")
