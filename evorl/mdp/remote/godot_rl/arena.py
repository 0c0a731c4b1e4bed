"""The agents of games with Godot RL Agents as slots that step together.

A game has no seeds for single episodes and begins them by itself, so an episode cannot be repeated. Its one flag for
ends counts as a termination. A saved arena goes on with new episodes: the first decision after it counts as failed. An
episode that is cut by a limit of steps (`StepLimit`) goes on in the game, where the next one begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress

import numpy as np

from evorl.mdp import decision_arrays, restarts
from evorl.mdp.core import Array, Closes, Decisions, StepLimit, StepsTogether
from evorl.mdp.decision_arrays import action_format
from evorl.mdp.forms import Resolution
from evorl.mdp.remote.godot_rl.game import Game
from evorl.mdp.remote.messages import Cut, Nonsense, Unplayable
from evorl.mdp.remote.server import MAX_PROCESSES, Settings, overlong
from evorl.mdp.shared import Shared
from evorl.util.errors import BadRequest
from evorl.util.stop import pause
from evorl.util.types import StateDict

LOG = logging.getLogger("evorl")
MAX_FAILURES = len(restarts.PAUSES_S) + 1
"""Failures of one game after another, without a step, that end the run."""


class Games:
    """The games of one process of evorl. They are kept after an arena has ended, for the next one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle = [Game(settings, 1)]
        self._alive = self._started = 1  # games that run; games so far, of which each has a seed of its own
        self.form = self._idle[0].form

    def take(self) -> Game:
        """Return a free game. Raises `Unplayable`."""
        if self._idle:
            return self._idle.pop()
        if self._alive == MAX_PROCESSES:
            raise Unplayable(f"{MAX_PROCESSES} games run, which is too many")
        self._started += 1
        game = Game(self._settings, self._started)
        if not game.form.is_like(self.form):
            game.close()
            raise Unplayable(f"{game.name} has other agents, observations or actions than the game before")
        self._alive += 1
        return game

    def take_back_from_play(self, game: Game, deadline_s: float) -> None:
        """Take back a game that may still act: the next arena must not take its outcome for an answer of its own."""
        if game.closed:
            return
        try:
            if game.acting:
                game.outcome(deadline_s)
        except (Cut, Nonsense):
            self.end(game)
        except BaseException:  # the run is to stop
            self.end(game)
            raise
        else:
            self._idle.append(game)

    def end(self, game: Game) -> None:
        """End a game that has failed, or may still have to answer."""
        game.close()
        self._alive -= 1

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class GodotRLArena(StepLimit, StepsTogether, Closes):
    """Slot s is agent s mod n of game s div n. Agents of the last game that are no slot do nothing.

    Results of an episode are its return, as ``fitness``, and its length.
    """

    sides = 1

    def __init__(
        self, games: Games, slots: int, deadline_s: float, ended: Callable[[], None] = lambda: None,
        time_limit: int | None = None,
    ) -> None:  # fmt: skip
        """``ended`` is called when the arena is closed; ``time_limit``: decisions of the longest episode, if known."""
        if slots < 1:
            raise BadRequest(f"{slots} slots are none", "rl.slots")
        self.spec, self.slots = games.form.spec, slots
        self._on_close, self._time_limit = ended, time_limit
        self._games, self._agents, self._deadline_s = games, games.form.agents, deadline_s
        self._playing: list[Game] = []
        self._failures = [0] * -(-slots // self._agents)
        self._rows = decision_arrays.empty_decisions(self.spec, slots)
        self._rows.slots = np.arange(slots)
        self._returns, (self._lengths, self._episode) = np.zeros(slots), np.zeros((2, slots), np.int64)
        self._sent = self._restored = False
        names = [entry.name if entry.dtype == "float32" else "" for entry in self.spec.inputs]
        self._watched = [Resolution(f"the input {name!r}") if name else None for name in names]
        try:
            for _ in self._failures:
                self._playing.append(games.take())
            for number in range(len(self._playing)):
                self._begin(number)
        except BaseException:  # nobody else knows these games
            for game in self._playing:
                if not game.closed:
                    games.end(game)
            raise

    def recv(self) -> Decisions:
        """Return all slots, after the step of every game."""
        if self._sent:
            self._sent = False
            for number in range(len(self._playing)):
                self._step(number)
        return self._rows

    def send(self, slots: Array, actions: Array) -> None:
        """Raises ValueError unless ``slots`` is all slots."""
        if len(slots) != self.slots:
            raise ValueError(f"the games step all {self.slots} slots together, got actions for {len(slots)}")
        rows = self._rows
        rows.reward[:] = 0
        rows.terminated[:] = rows.truncated[:] = False
        rows.results, rows.failed, rows.cost = [], [], self.slots
        self._sent = True
        if self._restored:  # these states are of episodes that have gone
            return
        dtype, width = action_format(self.spec.action)
        whole = np.zeros((len(self._playing) * self._agents, width), dtype)
        whole[slots] = actions
        for number, part in enumerate(np.split(whole, len(self._playing))):
            with suppress(Cut):  # its outcome will tell
                self._playing[number].act(part)

    def _part(self, number: int) -> slice:
        """The slots of a game."""
        return slice(number * self._agents, min((number + 1) * self._agents, self.slots))

    def _step(self, number: int) -> None:
        """Take the outcome of a game's step, or begin anew if it failed."""
        part, rows = self._part(number), self._rows
        many = part.stop - part.start
        if self._restored:
            self._restored = number < len(self._playing) - 1
            self._begin(number)
            self._forget(part)
            return
        try:
            inputs, reward, done = self._playing[number].outcome(self._deadline_s)
        except (Cut, Nonsense) as error:
            self._replace(number, error)
            self._forget(part)
            return
        self._failures[number] = 0
        self._write(part, inputs)
        rows.reward[part, 0], rows.terminated[part] = reward[:many], done[:many]
        self._returns[part] += reward[:many]
        self._lengths[part] += 1
        if self._time_limit is not None and (~rows.terminated[part] & (self._lengths[part] >= self._time_limit)).any():
            raise overlong(self._playing[number].name, self._time_limit)
        if self.step_limit is not None:
            self._cut(part, self.step_limit)
        for slot in (part.start + np.flatnonzero((rows.terminated | rows.truncated)[part])).tolist():
            total = float(self._returns[slot])
            rows.results.append((slot, {"fitness": total, "return": total, "length": float(self._lengths[slot])}))
            self._returns[slot], self._lengths[slot] = 0, 0
            self._episode[slot] += 1

    def _cut(self, part: slice, limit: int) -> None:
        rows = self._rows
        rows.truncated[part] = (self._lengths[part] >= limit) & ~rows.terminated[part]
        for slot in (part.start + np.flatnonzero(rows.truncated[part])).tolist():
            self.cut += ((slot, int(self._episode[slot])),)
            for final, shown in zip(rows.final, rows.inputs, strict=True):
                final[slot] = shown[slot]

    def _forget(self, part: slice) -> None:
        """The last decisions of these slots have failed, and their episodes begin anew."""
        slots = list(range(part.start, part.stop))
        self._rows.failed += slots
        self._rows.cost -= len(slots)
        self._returns[part], self._lengths[part] = 0, 0

    def _begin(self, number: int) -> None:
        """Let the agents of a game begin. Raises `Unplayable` if that fails too often."""
        while True:
            try:
                self._write(self._part(number), self._playing[number].reset(self._deadline_s))
                return
            except (Cut, Nonsense) as error:
                self._count(number, error)

    def _replace(self, number: int, error: Exception) -> None:
        self._count(number, error)
        self._begin(number)

    def _count(self, number: int, error: Exception) -> None:
        """Count a failure of a game, and failed starts, until another is in its place. Raises `Unplayable`."""
        game = self._playing[number]
        why = f"{game.name} {game.why(error)}"
        self._games.end(game)
        while game.closed:
            self._failures[number] += 1
            if self._failures[number] == MAX_FAILURES:
                raise Unplayable(f"a game failed {MAX_FAILURES} times without a step; at last {why}")
            wait = restarts.PAUSES_S[self._failures[number] - 1]
            soon = f", in {wait:g} s" if wait else ""
            LOG.warning("%s: its %d agents begin anew in another%s", why, self._agents, soon)
            pause(wait)
            try:
                self._playing[number] = game = self._games.take()
            except Unplayable as failed:
                why = str(failed)

    def _write(self, part: slice, inputs: tuple[Array, ...]) -> None:
        for shown, x, watched in zip(self._rows.inputs, inputs, self._watched, strict=True):
            shown[part] = x[: part.stop - part.start]
            if watched is not None and part.start == 0:
                watched.see(x[0], "the game")

    def render(self, slot: int = 0) -> Array | None:
        """Games of other programs draw for themselves."""
        return None

    def state_dict(self) -> StateDict:
        return {"seen": decision_arrays.save_states(self._rows, np.arange(self.slots))}

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for another number of slots."""
        rows, slots = self._rows, len(state["seen"]["0"])
        if slots != self.slots:
            raise ValueError(f"the state is of {slots} slots, the arena has {self.slots}")
        decision_arrays.restore_states(rows, np.arange(self.slots), state["seen"])
        rows.reward[:] = 0
        rows.terminated[:] = rows.truncated[:] = False
        rows.results, rows.failed, rows.cost = [], [], 0
        self._sent, self._restored = False, True

    def close(self) -> None:
        if self._playing:
            with ExitStack() as left:  # all of it, also if the run is to stop meanwhile
                left.callback(self._on_close)
                while self._playing:
                    left.callback(self._games.take_back_from_play, self._playing.pop(), self._deadline_s)


GAMES = Shared(Games)
