"""The games of many pairs of policies, a fixed number of pairs at once.

Letters: H game slots of a pair. A pair keeps H game slots of an arena until each has played its share of the pair's
games; then the next pair has them. Its bits do not depend on the pairs beside it, nor on when it began: keys and noise
are those of a game's number, and a row of a `FrozenPolicies` depends on its own place alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Array, World
from evorl.opponents.seats import MatchKeys, MatchNoise, Seats
from evorl.rl import actor
from evorl.rl.core import Episode
from evorl.rl.evaluation import MAX_STEPS, limited_arena
from evorl.rl.films import Film, InRows, film_of_game
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.points import margin, points

ROWS = 20
"""Games of a pair that are played at once. A constant, since it decides the last bits."""
PAIRS = 64
"""Most pairs that are played at once."""


class Player(Protocol):
    """Who takes part: a policy, or the rule player of the world."""

    @property
    def learner(self) -> NetworkLearner[Any] | None:
        """A learner of the policy's form, whatever its weights are; None for the rule player."""
        ...

    @property
    def weights(self) -> Sequence[Tensor]:
        """What the policy acts with, as `Learner.weights` lists it."""
        ...

    @property
    def form(self) -> str:
        """Policies of the same form decide in one forward pass."""
        ...


class Pair(NamedTuple):
    """Two players by their places in the list of all, and the numbers of the games that they play."""

    a: int
    """It plays side 0 in games of even numbers, side 1 in the others."""
    b: int
    first: int
    """A multiple of `ROWS`."""
    end: int


class Outcome(NamedTuple):
    """The games of a pair in the order of their numbers."""

    pair: Pair
    points: list[float]
    """Of player a: 1 for a win, 1/2 for a draw, 0 for a defeat."""
    lengths: list[int]
    """Environment steps."""
    margins: list[float]
    """Half of what player a earned more than the other: its return where what a side wins the other loses."""


P = TypeVar("P", bound=Player)


@dataclass(frozen=True)
class Matches(Generic[P]):
    """Plays pairs of players; a member of a `Group` without a state. An outcome is a function of the fields alone."""

    world: World
    players: tuple[P, ...]
    seed: int
    deterministic: bool

    def play(self, pairs: Sequence[Sequence[int]]) -> list[Outcome]:
        """Play pairs, which `alike` has put together."""
        return list(self.outcomes([Pair(*pair) for pair in pairs]))

    def outcomes(self, pairs: Sequence[Pair]) -> Iterator[Outcome]:
        """Yield the outcome of each pair when its last game has ended. Of ``pairs``, `alike` has put them together."""
        torch.set_num_threads(1)
        rule = self.players[pairs[0].b].learner is None
        if not rule:
            yield from (_outcome(pair, games) for pair, games in self._run(self.world.all_sides(), None, pairs))
            return
        first = dict(self._run(self.world.one_side(0), 0, pairs))
        for pair, games in self._run(self.world.one_side(1), 1, pairs):
            yield _outcome(pair, first[pair] | games)

    def _run(self, world: World, side: int | None, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, _Games]]:
        """Yield the games of each pair; of one side alone where the world's rule player has the other."""
        first, end = pairs[0].first, pairs[0].end
        width = ROWS if side is None else ROWS // 2  # the rule player's two sides are played apart
        rounds = -(-(end - first) // ROWS)
        blocks = max(2, min(PAIRS, len(pairs)))  # one place alone has other bits than one of several
        keys = MatchKeys(self.seed, "match", True, first + (side or 0), rounds, width, stride=1 if side is None else 2)
        arena = limited_arena(world, blocks * width * world.sides, keys, MAX_STEPS)
        with closing(arena):
            seats = Seats(arena.spec, self._seats(pairs[0], blocks, width))
            noise = MatchNoise(arena.spec.action, self.seed, self.deterministic, arena.slots)
            yield from _Run(actor.Player(arena, seats), seats, keys, noise, side, self._put).games(pairs)

    def film(self, pair: Pair) -> Film:
        """Return the film of the first game of a pair: the same bits as when it was played among others.

        Raises `BadRequest` with its first picture where the world draws none.
        """
        game, rule = pair.first % ROWS, self.players[pair.b].learner is None
        side = pair.first % 2 if rule else None
        world = self.world.all_sides() if side is None else self.world.one_side(side)
        width, place = (ROWS, game) if side is None else (ROWS // 2, game // 2)
        keys = MatchKeys(self.seed, "match", True, pair.first)
        begin = partial(limited_arena, world, world.sides, keys, MAX_STEPS)
        with closing(begin()) as arena:  # for its spec
            spec = arena.spec
        seats = Seats(spec, self._seats(pair, 2, width))
        self._put(seats, 0, pair)
        noise = MatchNoise(spec.action, self.seed, self.deterministic, world.sides)
        own, sides = np.arange(world.sides), np.arange(world.sides) if side is None else np.array([side])

        def drawn(player: actor.Player) -> Tensor:
            numbers = partial(np.full_like, fill_value=pair.first)
            waiting = np.flatnonzero(player.waiting)
            return noise.take(own[waiting], player.lengths[waiting], numbers, sides)

        return film_of_game(world, begin, InRows(seats, 2 * width * world.sides, place * world.sides), drawn, "")

    def _put(self, seats: Seats, block: int, pair: Pair) -> None:
        """Give the seats of a block to the policies of a pair."""
        policies = [player for player in (self.players[pair.a], self.players[pair.b]) if player.learner is not None]
        for seat, policy in enumerate(policies):
            form, place = (0, len(policies) * block + seat) if len(seats.forms) == 1 else (seat, block)
            seats.put(form, place, policy.weights)

    def _seats(self, pair: Pair, blocks: int, width: int) -> list[tuple[Any, Array]]:
        """An example of each form of the pair, and the slots of its seats [seats, rows], those of each block together.

        Player a has side 0 in the games of even numbers, so in even game slots.
        """
        each = [self.players[player].learner for player in (pair.a, pair.b) if self.players[player].learner is not None]
        game = np.arange(width)
        mine = np.stack([2 * game + (game + seat) % 2 for seat in range(2)]) if len(each) == 2 else game[None]
        slots = mine + np.arange(blocks)[:, None, None] * mine.size
        if len({self.players[player].form for player in (pair.a, pair.b)}) == 1:
            return [(each[0], slots.reshape(-1, width))]
        return [(example, slots[:, seat]) for seat, example in enumerate(each)]


_Games = dict[int, tuple[float, int, float]]
"""Points of player a, environment steps, and the margin of player a, by the number of the game."""


def alike(pairs: Sequence[Pair], players: Sequence[Player], most: int) -> list[list[Pair]]:
    """Put pairs together that one call can play, at most so many: of the same forms, with games of the same numbers."""
    groups: dict[tuple[str, str, int, int], list[Pair]] = {}
    for pair in pairs:
        form = players[pair.a].form, players[pair.b].form
        groups.setdefault((*form, pair.first, pair.end), []).append(pair)
    return [group[at : at + most] for group in groups.values() for at in range(0, len(group), most)]


class _Run:
    """An arena whose game slots go from pair to pair. Letters: K blocks of H game slots, P sides that are played."""

    def __init__(
        self, player: actor.Player, seats: Seats, keys: MatchKeys, noise: MatchNoise, side: int | None,
        put: Callable[[Seats, int, Pair], None],
    ) -> None:  # fmt: skip
        self.player, self.seats, self.keys, self.noise, self.put = player, seats, keys, noise, put
        self.sides, self.slots = player.arena.sides, player.arena.slots
        self.game = np.arange(self.slots) // self.sides
        self.side = np.arange(self.slots) % self.sides if side is None else np.full(self.slots, side)
        self.episode = np.zeros(self.slots, np.int64)  # number of each slot's episode
        self.begin = np.zeros(self.slots // self.sides, np.int64)  # first episode that counts, of each game slot
        self.pairs: list[Pair | None] = [None] * (len(self.begin) // keys.width)
        self.ended: dict[tuple[int, int], dict[int, Episode]] = {}  # by game slot and episode, then by side

    def games(self, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, _Games]]:
        queue = iter(pairs)
        for block in range(len(self.pairs)):
            self._seat(block, next(queue, None))
        rows, player = np.arange(self.slots), self.player
        while any(self.pairs):
            noise = self.noise.take(rows, player.lengths[rows], self._number, self.side)
            player.send(rows, player.play(noise))
            decisions, over = player.recv()
            rows = decisions.slots
            touched = set()
            for slot, episode in over:
                game = slot // self.sides
                if self.pairs[game // self.keys.width] and self.episode[slot] >= self.begin[game]:
                    self.ended.setdefault((game, int(self.episode[slot])), {})[int(self.side[slot])] = episode
                    touched.add(game // self.keys.width)
                self.episode[slot] += 1
            for block in sorted(touched):
                if self._done(block) and (pair := self.pairs[block]) is not None:
                    yield pair, self._taken(block, pair)
                    self._seat(block, next(queue, None))

    def _number(self, slots: Array) -> Array:
        """The numbers of the games that slots play."""
        return np.asarray(self.keys.number(self.game[slots], self.episode[slots]))

    def _seat(self, block: int, pair: Pair | None) -> None:
        """Let a pair play in a block, from each game slot's next game without a decision on."""
        self.pairs[block] = pair
        if pair is None:
            return
        self.put(self.seats, block, pair)
        games = slice(block * self.keys.width, (block + 1) * self.keys.width)
        episode, decided = (x.reshape(-1, self.sides)[games] for x in (self.episode, self.player.lengths > 0))
        latest = episode.max(1)
        self.begin[games] = latest + (decided & (episode == latest[:, None])).any(1)

    def _done(self, block: int) -> bool:
        games = slice(block * self.keys.width, (block + 1) * self.keys.width)
        return bool((self.episode.reshape(-1, self.sides)[games].min(1) >= self.begin[games] + self.keys.rounds).all())

    def _taken(self, block: int, pair: Pair) -> _Games:
        """The games of a pair, which are forgotten here."""
        games = {}
        for game in range(block * self.keys.width, (block + 1) * self.keys.width):
            begin = int(self.begin[game])
            for episode in range(begin, begin + self.keys.rounds):
                number = int(self.keys.number(game, episode))
                sides = self.ended.pop((game, episode))
                if number < pair.end:
                    mine, other = sides[number % 2], sides.get(1 - number % 2)
                    length = round(max(side.length for side in sides.values()))
                    games[number] = points(mine, other), length, margin(mine, other)
            for late in [key for key in self.ended if key[0] == game]:
                del self.ended[late]
        return games


def _outcome(pair: Pair, games: _Games) -> Outcome:
    each = [games[number] for number in range(pair.first, pair.end)]
    return Outcome(pair, *(list(column) for column in zip(*each, strict=True)))
