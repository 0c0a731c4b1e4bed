"""Processes of the engine built from source: started when a game needs one, and kept for the next game."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from evorl.mdp.core import Array
from evorl.mdp.football.engine import REQUEST
from evorl.mdp.football.frame import FRAME
from evorl.mdp.shared import Shared
from evorl.util.parents import ending, exit_status, kill_group, with_parent

LOG = logging.getLogger("evorl")
ROOT = Path(__file__).parents[3]
RUN = "import sys; from evorl.mdp.football.engine import main; main(sys.argv[1])"
DEADLINE_S = 60.0
"""Seconds in which an engine must answer; the first answer takes some seconds, later ones some milliseconds."""
LAST = 4096
"""Bytes of what a process said last that are read."""


class Ended(RuntimeError):
    """The process has ended, or was ended since it was silent; the message says how."""


class GameProcess:
    """A process that plays games of a scenario. It ends with this one."""

    def __init__(self, scenario: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", RUN, scenario],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=self._said, preexec_fn=with_parent(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )  # fmt: skip
        self._answer, self._length = bytearray(FRAME.itemsize), 0
        self._owed = 0  # answers to requests whose sender did not wait for them
        self.used = False  # an earlier game was played in it

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, *request: int) -> Array:
        """Send a `REQUEST`; return the record that answers it. Raises `Ended`."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.get_running_loop().sock_sendall(self._socket, REQUEST.pack(*request))
                self._owed += 1
                while self._owed:
                    await self._receive()
        except (TimeoutError, OSError, EOFError) as error:
            late = f"said nothing for {DEADLINE_S:g} s" if isinstance(error, TimeoutError) else None
            raise Ended(f"process {self.pid} of the game {late or self._end()}") from None
        record: Array = np.frombuffer(bytes(self._answer), FRAME)[0]
        return record

    async def _receive(self) -> None:
        """Receive one answer, also if an earlier call was cancelled within it."""
        loop, whole = asyncio.get_running_loop(), memoryview(self._answer)
        while self._length < len(whole):
            got = await loop.sock_recv_into(self._socket, whole[self._length :])
            if not got:
                raise EOFError
            self._length += got
        self._length, self._owed = 0, self._owed - 1

    def ended(self) -> str | None:
        """Say how it ended, in one line; None while it runs."""
        return None if exit_status(self._process) is None else self._end()

    def _end(self) -> str:
        """Say how it ended, in one line."""
        status = exit_status(self._process, 1.0)
        if status is None:
            return "has closed its socket"
        self._said.seek(max(self._said.seek(0, os.SEEK_END) - LAST, 0))
        return ending(status, self._said.read())

    def close(self) -> None:
        kill_group(self._process)
        self._socket.close()
        self._said.close()


class Pool:
    """The processes of a scenario that play no game at present."""

    def __init__(self, scenario: str) -> None:
        self._scenario, self._closed = scenario, False
        self._free: list[GameProcess] = []

    def take(self) -> GameProcess:
        """One that runs, or a new one."""
        while self._free:
            process = self._free.pop()
            if (how := process.ended()) is None:
                return process
            LOG.warning("process %d of the game %s while it played none", process.pid, how)
            process.close()
        return self.start()

    def start(self) -> GameProcess:
        return GameProcess(self._scenario)

    def give_back(self, process: GameProcess) -> None:
        if self._closed:
            process.close()
        else:
            process.used = True
            self._free.append(process)

    def close(self) -> None:
        self._closed = True
        while self._free:
            self._free.pop().close()


POOLS: Shared[str, Pool] = Shared(Pool)
"""By scenario."""
