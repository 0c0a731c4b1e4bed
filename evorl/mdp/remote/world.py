"""The config of games in other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from evorl.mdp.core import Arena, Spec, World
from evorl.mdp.remote import address
from evorl.mdp.remote.arena import RemoteArena
from evorl.mdp.remote.godot_rl.arena import GAMES, GodotRLArena
from evorl.mdp.remote.info import GameInfo
from evorl.mdp.remote.process import check_command
from evorl.mdp.remote.server import SERVERS, Settings
from evorl.util.errors import BadRequest, nearest_or_all
from evorl.util.seed import Episodes, below
from evorl.util.types import Count, Positive

Player = Literal["self", "game"]
Protocol = Literal["evorl", "godot_rl"]


@dataclass(frozen=True, kw_only=True)
class Remote(World):
    """A game in another program, by the protocol of docs/remote.md or that of Godot RL Agents."""

    command: str | None = None
    """Starts a process of the game; ``{address} {host} {port} {seed} {python} {clients}`` are filled in.

    null: games that are started otherwise connect."""
    processes: Count = 1
    """Processes over which battles are spread; more are started if these cannot play all battles at once."""
    listen: str | None = None
    """Where games connect: HOST:PORT or unix:PATH; null: a free port of 127.0.0.1."""
    protocol: Protocol = "evorl"
    """What the game speaks; godot_rl: the protocol of Godot RL Agents, each of whose agents is a game of one side."""
    start_s: Positive = 60.0
    """Seconds in which a game must connect."""
    deadline_s: Positive = 30.0
    """Seconds of silence after which a battle is lost."""
    opponent: Player = "self"
    """Who plays the other sides; self: the learner plays all; game: the game does, if it can."""
    side: str | None = None
    """The learner's side with opponent=game; null: drawn per episode."""
    evaluation: Player = "self"
    """Who plays the other sides in evaluations of a learner that plays all."""
    time_limit: Count | None = None
    """Decisions after which an episode ends at the latest, if that is known; null: unknown."""
    budget: Count = 1_000_000

    def __post_init__(self) -> None:
        address.check(self.listen, has_token=self.protocol == "evorl")
        if self.processes > 1 and (self.command is None or self.protocol == "godot_rl"):
            raise BadRequest("is for a command whose processes play several battles (protocol=evorl)", "processes")
        if self.protocol == "godot_rl" and "game" in (self.opponent, self.evaluation):
            raise BadRequest("games of Godot RL Agents have one side", self._played_by_game)
        if self.side is not None and self.opponent == "self":
            raise BadRequest(
                f"{self.side} contradicts opponent=self, which plays all sides; mdp.opponent=game plays the others",
                "side",
            )

    @property
    def _played_by_game(self) -> str:
        """The key that lets the game play sides, if one does."""
        return "opponent" if self.opponent == "game" else "evaluation"

    @property
    def alone(self) -> str:
        return f"one process can listen at {self.listen} (mdp.listen)" if address.is_one(self.listen) else ""

    @property
    def repeats(self) -> bool:
        return self.game.repeats

    def commands(self) -> tuple[str, ...]:
        return () if self.command is None else (self.command,)

    def ready(self) -> None:
        if self.command is None and self.listen is None:
            raise BadRequest("a command that starts the game is needed, or mdp.listen, where games connect", "command")
        if self.command is not None:
            check_command(self.command)

    @property
    def _settings(self) -> Settings:
        return Settings(self.command, self.processes, self.listen, self.start_s)

    @property
    def game(self) -> GameInfo:
        """What is known of the game; starts it, or waits for it. Raises `BadRequest`, `WorldError`."""
        shared = GAMES[self._settings].form if self.protocol == "godot_rl" else SERVERS[self._settings].offer
        game = shared.info
        if "game" in (self.opponent, self.evaluation) and len(game.sides) > 1 and not game.rule:
            raise BadRequest(f"{game.title} plays no side itself (it offers no rule)", self._played_by_game)
        if self.side is not None and self.side not in game.sides:
            raise BadRequest(f"{game.title} has no side {self.side}{nearest_or_all(self.side, game.sides)}", "side")
        return game

    @property
    def spec(self) -> Spec:
        return self.game.spec

    @property
    def title(self) -> str:
        return self.game.title

    @property
    def sides(self) -> int:
        return len(self.players(0))

    @property
    def side_names(self) -> tuple[str, ...]:
        return self.game.sides

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return self.game.feature_names

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return self.game.action_names

    @property
    def draws(self) -> bool:
        return False

    @property
    def seconds_per_step(self) -> float | None:
        return self.game.seconds or None

    @property
    def longest_episode(self) -> int | None:
        return self.time_limit

    @property
    def limited(self) -> bool:
        """False for games of one side that evaluations must truncate."""
        return self.longest_episode is not None or self.evaluation_world().sides > 1

    def players(self, seed: int) -> tuple[int, ...]:
        names = self.side_names
        if self.opponent == "self":
            return tuple(range(len(names)))
        return (below(seed, len(names)) if self.side is None else names.index(self.side),)

    def evaluation_world(self) -> Remote:
        return replace(self, opponent="game") if self.opponent == "self" and self.evaluation == "game" else self

    def all_sides(self) -> World:
        if len(self.side_names) == 1:
            return super().all_sides()
        return replace(self, opponent="self", side=None)

    def one_side(self, side: int) -> World:
        if not self.game.rule:
            return super().one_side(side)
        return replace(self, opponent="game", side=self.side_names[side])

    def hold(self) -> Callable[[], None]:
        shared = GAMES if self.protocol == "godot_rl" else SERVERS
        return shared.use(self._settings)

    def close(self) -> None:
        SERVERS.close(self._settings)
        GAMES.close(self._settings)

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        if self.protocol == "godot_rl":
            games = GAMES[self._settings]
            with _used(self.hold()) as ended:
                return GodotRLArena(games, slots, self.deadline_s, ended, self.time_limit)
        self.game  # noqa: B018 (raises what is wrong with these keys)
        server = SERVERS[self._settings]
        with _used(self.hold()) as ended:
            return RemoteArena(server, slots, episodes, self.players, self.deadline_s, ended, self.time_limit)


@contextmanager
def _used(ended: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """End the use of what is shared if the body raises."""
    try:
        yield ended
    except BaseException:
        ended()
        raise
