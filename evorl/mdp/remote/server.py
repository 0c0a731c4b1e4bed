"""Where games connect: it listens, lets in whoever has the token, starts processes, and gives out places of battles.

It is shared by all arenas of a process whose worlds have the same `Settings`, so an evaluation plays in the processes
that training has started. It does nothing unless an arena or `offer` lets it (`poll`): there is no thread.
"""

from __future__ import annotations

import errno
import hmac
import logging
import os
import secrets
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from evorl.mdp.forms import Mismatch
from evorl.mdp.remote.address import BACKLOG, listener
from evorl.mdp.remote.connection import Connection, Receiver
from evorl.mdp.remote.link import Link
from evorl.mdp.remote.messages import Cut, Nonsense, Refused, Unplayable, Welcome, encoded, read_hello
from evorl.mdp.remote.offer import Offer
from evorl.mdp.remote.process import GameProcess
from evorl.mdp.remote.spinning import SpinningSelector
from evorl.mdp.shared import Shared
from evorl.util.heartbeat import heartbeat
from evorl.util.seed import key, seed31
from evorl.util.stop import stopping
from evorl.util.text import say

LOG = logging.getLogger("evorl")
HELLO_S = 10.0
"""Seconds in which a new connection must send its hello."""
MAX_STRANGERS = 64
"""Connections that have not said hello; more push out the oldest."""
MAX_PROCESSES = 256
TOLD = 20
"""Refused connections with a warning each; after these, every thousandth has one."""
PAUSES_S = (0.0, 1.0, 2.0, 5.0, 10.0)
"""Seconds before the start after one that failed, after two, ...; one failure more ends the run."""
GRACE_S = 0.1
"""Seconds in which a process that has closed its connection may end, so that its exit code can be reported."""
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of a connection that stays in the queue, since there is no file or memory for it."""
FULL_S = 1.0
"""Seconds before it is tried again."""
PASS_S = 0.2
"""Seconds that a `poll` may take while something has to be looked after."""


def overlong(game: str, limit: int) -> Mismatch:
    """The error of an episode that goes on after the declared ``limit``."""
    return Mismatch(
        f"an episode of {game} goes on after {limit:,} decisions, and mdp.time_limit says that each has ended by then"
    )


class Settings(NamedTuple):
    command: str | None
    processes: int
    listen: str | None
    start_s: float


class _Stranger(NamedTuple):
    link: Link
    since: float


class GameServer:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.address, self._socket = listener(settings.listen)
        self._token = os.environ.get("EVORL_TOKEN") or secrets.token_hex(16)
        self._selector = SpinningSelector()
        self._selector.register(self._socket, selectors.EVENT_READ, self._accept)
        self._strangers: deque[_Stranger] = deque()
        self._connections: dict[Connection, GameProcess | None] = {}
        self._writing: set[Connection] = set()  # for which something waits
        self._processes: list[GameProcess] = []
        self._queue: deque[tuple[Receiver, int, Callable[[Connection, int], None]]] = deque()
        self._offer: Offer | None = None
        self._started = self._failed = self._refused = 0
        self._refusal = ""  # why a connection was refused while a game is waited for
        self._pause_until = 0.0
        self._full_until: float | None = None  # until then no connection is taken
        self._waits_since: float | None = None
        self._told: set[str] = set()  # errors, and last lines of processes, that have been shown
        if settings.command is None:
            token = "that of EVORL_TOKEN" if os.environ.get("EVORL_TOKEN") else self._token
            say(f"waiting for games at {self.address.text}; their token is {token}", sys.stderr)

    # -------------------------------------------------------------- for arenas

    @property
    def offer(self) -> Offer:
        """What the games offer; waits for the first. Raises `Unplayable`."""
        while self._offer is None:
            heartbeat()  # this wait has an end of its own (mdp.start_s)
            if self.settings.command is not None and not self._processes and time.monotonic() >= self._pause_until:
                self._start()
            self.poll(PASS_S)
            self._check_patience(wanted=self._offer is None)
        return self._offer

    def request(self, owner: Receiver, game: int, give: Callable[[Connection, int], None]) -> None:
        """Ask for a place for a game of an arena; ``give`` gets it within a later `poll`."""
        self._queue.append((owner, game, give))

    def withdraw(self, owner: Receiver) -> None:
        """Forget an arena's requests."""
        self._queue = deque(request for request in self._queue if request[0] is not owner)
        if not self._queue:
            self._waits_since = None

    def poll(self, timeout: float) -> None:
        """Wait until something happens, for ``timeout`` seconds at most. Raises `Unplayable`."""
        busy = bool(self._queue or self._strangers or self._starting or self._full_until)
        for connection in self._connections:
            if connection.link.unsent or connection in self._writing:
                self._watch(connection)
        for ready, _ in self._selector.select(min(timeout, PASS_S) if busy else timeout):
            if self._selector.get_map().get(ready.fd) is ready:  # unless an earlier call has closed it
                ready.data()
        if busy or self._queue:
            self._look_after()

    def cut(self, connection: Connection, why: str, broke: bool = False) -> None:
        """Give up a connection: its battles are lost, and its process is replaced when a place is needed.

        ``broke``: the other end has broken it, so how its process ended says more. A process that ends before it has
        played counts as a failed start: others would be started for ever. Raises `Unplayable` after too many.
        """
        if connection not in self._connections:
            return
        process = self._connections.pop(connection)
        self._writing.discard(connection)
        with suppress(Cut):
            connection.link.send(encoded(Refused(why)))
        self._selector.unregister(connection.link.socket)
        connection.link.close()
        if process is not None:
            why = (process.end(GRACE_S) if broke else None) or why
            self._tell_output(process)
            self._drop(process)
        for owner, game in connection.owned():
            owner.lost.append((game, f"{connection.name} {why}", True))
        if process is not None and broke and not connection.played:
            why = f"{connection.name} has connected, but not played: it {why}"
            self._count_failed_start(why, time.monotonic(), process.was_killed)

    def _tell_output(self, process: GameProcess) -> None:
        """Show what a process printed before it ended by itself, such as a traceback; the same lines once."""
        lines = process.last_lines()
        if len(lines) > 1 and lines[-1] not in self._told:
            self._told.add(lines[-1])
            LOG.warning("%s printed at its end:\n%s", process.name, "\n".join(lines))

    def close(self) -> None:
        """End all processes and connections."""
        for connection in self._connections:
            connection.link.close()
        for stranger in self._strangers:
            stranger.link.close()
        for process in [*self._processes]:
            self._drop(process)
        self._selector.close()
        self._socket.close()
        self.address.remove()

    # -------------------------------------------------------------- connections

    def _accept(self) -> None:
        """Take all who have come: one who came while evorl computed must not seem late because it is not the first."""
        try:
            for _ in range(BACKLOG):
                self._take(self._socket.accept()[0])
        except OSError as error:
            if error.errno in FULL:
                self._rest(error)

    def _rest(self, error: OSError) -> None:
        """Take no connection for a while: the selector would say all the time that one has come."""
        why = str(error.strerror)
        self._refusal = f"; one that has come cannot be taken: {why}"
        if why not in self._told:
            self._told.add(why)
            LOG.warning("a connection to %s cannot be taken now: %s", self.address.text, why)
        self._selector.unregister(self._socket)
        self._full_until = time.monotonic() + FULL_S

    def _take(self, connected: socket.socket) -> None:
        stranger = _Stranger(Link(connected), time.monotonic())
        self._strangers.append(stranger)
        self._selector.register(connected, selectors.EVENT_READ, lambda: self._greet(stranger))
        if len(self._strangers) > MAX_STRANGERS:
            self._refuse(self._strangers[0], "came when there were too many")
        if stranger in self._strangers:
            self._greet(stranger)

    def _greet(self, stranger: _Stranger) -> None:
        """Read a hello if it has arrived, and let its sender in."""
        link = stranger.link
        try:
            frames = link.receive()
            if not frames:
                return
            if len(frames) > 1:
                raise Nonsense("spoke before it was welcome")
            hello = read_hello(frames[0])
            process = self._holder(hello.token)
            offer = Offer(hello)
            if self._offer is not None and not alike(offer, self._offer):
                raise Nonsense(f"offers {hello.game} in another form than the game before")
        except (Cut, Nonsense) as error:
            self._refuse(stranger, str(error))
            return
        self._strangers.remove(stranger)
        self._selector.unregister(link.socket)
        name = f"game {len(self._connections) + 1}" if process is None else process.name
        connection = Connection(link, offer, name)
        self._connections[connection] = process
        self._selector.register(link.socket, selectors.EVENT_READ, lambda: self._serve(connection))
        self._offer = self._offer or offer
        if process is not None:
            process.greeted = True
        else:
            plays = sum(each.capacity for each in self._connections)
            say(f"{hello.game} has connected; {len(self._connections)} games play {plays} battles at once", sys.stderr)
        link.trust()
        try:
            link.send(encoded(Welcome()))
            link.check_open()
        except Cut as error:
            self.cut(connection, str(error), broke=True)

    def _holder(self, token: str) -> GameProcess | None:
        """The process whose token it is; None for the token of all others. Raises `Nonsense` for any other."""
        for process in self._processes:
            if not process.greeted and hmac.compare_digest(process.token.encode(), token.encode()):
                return process
        if self.settings.command is None and hmac.compare_digest(self._token.encode(), token.encode()):
            return None
        raise Nonsense("has not the token of these games")

    def _refuse(self, stranger: _Stranger, why: str) -> None:
        self._refused, self._refusal = self._refused + 1, f"; a connection was refused: it {why}"
        if self._refused <= TOLD or self._refused % 1000 == 0:
            LOG.warning("refused connection %d to %s: it %s", self._refused, self.address.text, why)
        with suppress(Cut):
            stranger.link.send(encoded(Refused(why)))
        self._strangers.remove(stranger)
        self._selector.unregister(stranger.link.socket)
        stranger.link.close()

    def _watch(self, connection: Connection) -> None:
        """Wake up when a connection takes what waits for it, as long as something does."""
        unsent = connection.link.unsent
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
        self._selector.modify(connection.link.socket, events, lambda: self._serve(connection))
        (self._writing.add if unsent else self._writing.discard)(connection)

    def _serve(self, connection: Connection) -> None:
        try:
            connection.link.flush()
            connection.receive()
            if self._failed and connection.played:
                self._failed = 0
        except (Cut, Nonsense) as error:
            self.cut(connection, str(error), broke=isinstance(error, Cut))

    # -------------------------------------------------------------- processes

    @property
    def _starting(self) -> list[GameProcess]:
        return [process for process in self._processes if not process.greeted]

    def _start(self) -> None:
        assert self.settings.command is not None
        self._started, self._refusal = self._started + 1, ""
        seed = seed31(key("game", self._started))
        values = {**self.address.values(), "seed": seed}
        process = GameProcess(self.settings.command, values, secrets.token_hex(16), self._started)
        self._processes.append(process)
        self._selector.register(process.pipe, selectors.EVENT_READ, lambda: self._hear(process))

    def _hear(self, process: GameProcess) -> None:
        if not process.drain():
            self._selector.unregister(process.pipe)

    def _drop(self, process: GameProcess) -> None:
        with suppress(KeyError):
            self._selector.unregister(process.pipe)
        self._processes.remove(process)
        process.close()

    def _look_after(self) -> None:
        """Refuse strangers that are silent, notice failed starts, and give out places."""
        moment = time.monotonic()
        if self._full_until is not None and moment > self._full_until:
            self._full_until, self._refusal = None, ""
            self._selector.register(self._socket, selectors.EVENT_READ, self._accept)
        while self._strangers and moment - self._strangers[0].since > HELLO_S:
            self._refuse(self._strangers[0], f"said nothing for {HELLO_S:g} s")
        for process in self._starting:
            ended = process.end()
            why = ended and f"has not connected: it {ended}"
            if why is None and moment - process.began > self.settings.start_s:
                why = f"has not connected in {self.settings.start_s:g} s (mdp.start_s)"
            if why is not None:
                killed = process.was_killed
                self._drop(process)
                self._count_failed_start(f"{process.name} {why}{self._refusal}", moment, killed)
        self._give_places(moment)

    def _count_failed_start(self, why: str, moment: float, killed: bool) -> None:
        """Start it again later. Raises `Unplayable` after too many, and for the first if it was not killed."""
        self._failed += 1
        if self._offer is None and not killed:
            raise Unplayable(f"mdp.command: {why}")
        if self._failed >= len(PAUSES_S):
            raise Unplayable(why)
        LOG.warning("%s; starting it again", why)
        self._pause_until = moment + PAUSES_S[self._failed]

    def _give_places(self, moment: float) -> None:
        if not self._queue or (moment < self._pause_until and not stopping()):
            return
        if self.settings.command is not None:
            while len(self._processes) < self.settings.processes:
                self._start()
        if self._starting:  # battles are spread over all processes
            return
        while self._queue and (rooms := [room for room in self._connections if room.used < room.capacity]):
            room = min(rooms, key=lambda room: room.used)
            owner, game, give = self._queue.popleft()
            place = room.take(owner, game)
            try:
                give(room, place)
            except (Cut, Nonsense) as error:
                self.cut(room, str(error), broke=isinstance(error, Cut))
        if self._queue and self.settings.command is not None:
            self._start_more()
        else:
            self._check_patience(wanted=bool(self._queue))

    def _start_more(self) -> None:
        """Start processes for battles that those which run cannot play."""
        each = self.offer.hello.battles
        more = -(-len(self._queue) // each)
        if len(self._processes) + more > MAX_PROCESSES:
            raise Unplayable(f"{MAX_PROCESSES} processes, which play {each} battles each, are not enough")
        for _ in range(more):
            self._start()

    def _check_patience(self, wanted: bool) -> None:
        """Wait for games that evorl does not start, for a limited time."""
        moment = time.monotonic()
        if self.settings.command is not None:
            return
        if not wanted:
            self._waits_since, self._refusal = None, ""
            return
        self._waits_since = self._waits_since or moment
        if moment - self._waits_since > self.settings.start_s:
            have = sum(connection.capacity for connection in self._connections)
            need = f": {len(self._queue)} battles wait, and the {len(self._connections)} connected games play {have}"
            further, need = ("further ", need) if have else ("", "")
            self._waits_since = None
            raise Unplayable(
                f"no {further}game has connected to {self.address.text} in {self.settings.start_s:g} s (mdp.start_s)"
                f"{need}{self._refusal}"
            )


def alike(first: Offer, second: Offer) -> bool:
    """Whether battles of two games can be played in one arena."""
    a, b = (offer.info._replace(title="", seconds=0.0) for offer in (first, second))
    return a == b and first.hello.results == second.hello.results


SERVERS = Shared(GameServer)
