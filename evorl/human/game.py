"""Games between a person and a policy, in real time: one after another, until the end of the program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Event, Thread

import numpy as np
import torch

from evorl.human.keys import action_of, bindings_of
from evorl.mdp.begin import begin
from evorl.mdp.core import Arena, Array, EpisodeEndHook, FrameHook, World
from evorl.mdp.decision_arrays import rule_actions
from evorl.nets.distributions import noise_size
from evorl.rl.actor import Player
from evorl.rl.core import Acting, Episode
from evorl.rl.evaluation import MAX_STEPS, limited_arena
from evorl.rl.films import Shown
from evorl.rl.points import points
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.typed import typed

STEP_S = 1 / 30
"""Seconds of an environment step in a world without a clock."""
AWAY_S = 2.0
"""Seconds without a request after which the person is away, and the game waits."""
PAUSE_S = 1.0
"""Between two games."""
LOOK_S = 0.05
"""Between two looks whether the person has chosen another game."""


Film = Callable[[Iterator[Shown], int], None]
"""Writes the pictures of the game with this number, with their times in the game."""


@dataclass(frozen=True)
class Choices:
    """What a person can choose; a change begins a new game."""

    side: int = 0
    opponent: str = "policy"
    speed: float = 1.0


@dataclass
class Score:
    """How the games between a person and one opponent have ended, for the person."""

    won: int = 0
    lost: int = 0
    drawn: int = 0
    last: dict[str, float] = field(default_factory=dict)

    def add(self, episode: Episode, others: float | None = None) -> None:
        """Count a game by its points (`evorl.rl.points`); ``others``: the mean return of the policy's sides."""
        other = None if others is None or "win" in episode.results else episode._replace(ret=others)
        won = points(episode, other)
        self.won, self.lost, self.drawn = self.won + (won > 0.5), self.lost + (won < 0.5), self.drawn + (won == 0.5)
        self.last = {"return": episode.ret, **episode.results}


@dataclass(frozen=True)
class Frame:
    """A picture and the texts beside it."""

    number: int
    picture: Array  # uint8 [H, W, 3]
    score: float  # the person's return so far
    over: bool


class Games:
    """Runs in a thread of its own (`run`); other threads press keys, choose, and wait for pictures."""

    def __init__(self, world: World, policy: Acting, seed: int, film: Film | None = None) -> None:
        """Raises `BadRequest` for a world of one side."""
        self.world, self.policy, self.seed, self.film = world.all_sides(), policy, seed, film
        self.sides = self.world.sides
        self.names = self.world.side_names or tuple(f"side {number}" for number in range(self.sides))
        self.opponents = ("policy", "rule") if self.world.takes_rule_action else ("policy",)
        self.bindings = [bindings_of(self.world, policy.spec.action, side) for side in range(self.sides)]
        self.choices, self.scores = Choices(), {name: Score() for name in self.opponents}
        self.held: frozenset[str] = frozenset()
        self.newest: Frame | None = None
        self.changed = Condition()
        self.stopped = Event()
        self._heard = -AWAY_S  # when somebody asked last
        self._order = -1  # of the newest message about keys
        self._frames: SimpleQueue[Shown | None] | None = None

    # -------------------------------------------------------------- other threads

    def press(self, held: frozenset[str], order: int) -> None:
        """These keys are held now, unless a later message (a higher ``order``) is known."""
        with self.changed:
            self._heard = time.monotonic()
            if order > self._order:
                self.held, self._order = held, order

    def choose(self, **choices: int | str | float) -> None:
        """Begin a new game with these choices. Raises `BadRequest`."""
        new = typed({**vars(self.choices), **choices}, Choices)
        if not 0 <= new.side < self.sides:
            raise BadRequest(f"is from 0 to {self.sides - 1}", "side")
        if new.opponent not in self.opponents:
            raise BadRequest(f"is one of {', '.join(self.opponents)}", "opponent")
        if not 0.1 <= new.speed <= 10:
            raise BadRequest("is from 0.1 to 10", "speed")
        self.choices = new

    def after(self, number: int, patience_s: float) -> Frame | None:
        """Wait for a picture with a higher number."""
        with self.changed:
            self._heard = time.monotonic()
            self.changed.wait_for(lambda: self.newest is not None and self.newest.number != number, patience_s)
            return self.newest

    # -------------------------------------------------------------- the games' thread

    def run(self) -> None:
        game = 0
        while not self.stopped.is_set():
            self._play(game)
            game += 1

    def _play(self, game: int) -> None:
        choices = self.choices
        arena = limited_arena(self.world, self.sides, seeds.Episodes(self.seed, f"person {game}"), MAX_STEPS)
        try:
            with self._filmed(game):
                _Game(self, arena, choices).play()
        finally:
            arena.close()

    @contextmanager
    def _filmed(self, game: int) -> Iterator[None]:
        """Write a film of the pictures that are shown in the meantime."""
        if self.film is None:
            yield
            return
        frames: SimpleQueue[Shown | None] = SimpleQueue()
        writer = Thread(target=self.film, args=(_until_none(frames), game))
        writer.start()
        self._frames = frames
        try:
            yield
        finally:
            self._frames = None
            frames.put(None)
            writer.join()

    def show(self, shown: Shown, score: float, over: bool) -> None:
        if self._frames is not None:
            self._frames.put(shown)
        with self.changed:
            number = 0 if self.newest is None else self.newest.number + 1
            self.newest = Frame(number, shown[0], score, over)
            self.changed.notify_all()

    def away(self) -> bool:
        return time.monotonic() - self._heard > AWAY_S


def _until_none(frames: SimpleQueue[Shown | None]) -> Iterator[Shown]:
    while (frame := frames.get()) is not None:
        yield frame


class _Game:
    """One game, at the pace of its clock."""

    def __init__(self, games: Games, arena: Arena, choices: Choices) -> None:
        self.games, self.arena, self.choices = games, arena, choices
        self.step_s = games.world.seconds_per_step or STEP_S
        self.at = 0.0  # seconds of the game, at any speed
        self.due = time.monotonic()
        self.score = 0.0
        self.hooked = isinstance(arena, FrameHook)
        if isinstance(arena, FrameHook):
            arena.on_frame = lambda: self.pass_time(self.step_s)
        if isinstance(arena, EpisodeEndHook):
            arena.on_episode_end = lambda: self.show(over=True)

    @property
    def abandoned(self) -> bool:
        """Whether the person chose another game, or the program ends."""
        return self.games.stopped.is_set() or self.games.choices != self.choices

    def play(self) -> None:
        player = Player(self.arena, self.games.policy)
        still = torch.zeros(self.arena.slots, noise_size(self.arena.spec.action))
        mine, ended = self.choices.side, dict[int, Episode]()
        self.pass_time(self.step_s)
        while mine not in ended and not self.abandoned:
            ended |= self.decide(player, still)
        if mine in ended:
            self.score = ended[mine].ret
            others = self.others_return(player, ended) if self.choices.opponent == "policy" else None
            self.games.scores[self.choices.opponent].add(ended[mine], others)
            self.show(over=True)  # with the last reward, which the picture at the end of the game came before
            self.wait(PAUSE_S)

    def decide(self, player: Player, still: torch.Tensor) -> dict[int, Episode]:
        """One decision of all who wait; the episodes of the sides that are over."""
        mine, rows = self.choices.side, np.flatnonzero(player.waiting)
        decision = player.play(still)
        played = decision.played.numpy().copy()
        if self.choices.opponent == "rule":
            played[np.arange(len(played)) != mine] = rule_actions(self.arena.spec, 1)
        if mine in rows:
            legal = None if player.decisions.legal is None else player.decisions.legal[mine]
            played[mine] = action_of(self.games.bindings[mine], self.arena.spec.action, self.games.held, legal)
        player.send(rows, decision._replace(played=torch.from_numpy(played)))
        decisions, over = player.recv()
        ended = dict(over)
        self.score = float(player.returns[mine].sum())
        if mine not in ended and not self.hooked:
            self.pass_time(decisions.cost * self.step_s)
        return ended

    def others_return(self, player: Player, ended: dict[int, Episode]) -> float:
        """The mean return of the other sides, of which one may be told of the end later than the person."""
        others = [side for side in range(self.arena.slots) if side != self.choices.side]
        returns = [ended[side].ret if side in ended else player.returns[side].sum() for side in others]
        return float(np.mean(returns))

    def pass_time(self, seconds: float) -> None:
        """Show the picture, then let this time of the game pass. Called from within worlds, it raises nothing."""
        if not self.abandoned:
            self.show()
        self.at += seconds
        self.wait(seconds / self.choices.speed)

    def wait(self, seconds: float) -> None:
        """Wait for the person's clock, and until a page is open."""
        self.due = max(self.due + seconds, time.monotonic())  # who was late does not hurry
        while not self.abandoned and (self.games.away() or time.monotonic() < self.due):
            self.games.stopped.wait(min(max(self.due - time.monotonic(), 0.001), LOOK_S))

    def show(self, over: bool = False) -> None:
        picture = self.arena.render(0)
        assert picture is not None  # check_draws
        self.games.show((np.array(picture), self.at), self.score, over)


def check_draws(world: World) -> None:
    """Raise `BadRequest` unless the world draws its games."""
    arena = begin(world.all_sides(), world.all_sides().sides, seeds.Episodes(0, "spec"))
    try:
        if arena.render(0) is None:
            raise BadRequest(f"{world.title} draws no pictures", "run")
    finally:
        arena.close()
