"""The config of OpenSpiel's games."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Discrete, Input, Spec
from evorl.mdp.openspiel.game import SpielGame
from evorl.mdp.openspiel.loading import Loaded, Parameter, Tensor, load
from evorl.mdp.turns import IN_TURNS, RandomPlayer, TurnBattle
from evorl.util.errors import BadRequest
from evorl.util.seed import below
from evorl.util.types import Count, Natural


@dataclass(frozen=True, kw_only=True)
class OpenSpiel(BattleWorld):
    """A game of OpenSpiel. An environment step is a move, also of several sides at once. Needs the extra openspiel."""

    game: str
    """OpenSpiel's name of the game, with or without parameters."""
    kwargs: dict[str, Parameter] = field(default_factory=dict)
    """Parameters of the game."""
    observe: Tensor | None = None
    """The tensor that a side observes; null: information_state, which recalls all, if the game has it."""
    opponent: Literal["self", "random"] = "self"
    """Player of the other sides; self: the learner plays all; random: uniform among legal actions."""
    side: Natural | None = None
    """The learner's side with opponent=random; null: drawn per episode."""
    budget: Count = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side is not None and self.opponent == "self":
            raise BadRequest(f"{self.side} contradicts opponent=self, which plays all sides", "side")
        if self.frame_skip != 1:
            raise BadRequest(IN_TURNS, "frame_skip")

    def ready(self) -> None:
        sides = self.spec.players
        if self.side is not None and self.side >= sides:
            raise BadRequest(f"{self.game} has the sides 0 to {sides - 1}, not {self.side}", "side")

    @property
    def title(self) -> str:
        return self.game

    @property
    def loaded(self) -> Loaded:
        """The game. Raises `BadRequest`."""
        return load(self.game, self.kwargs)

    @property
    def spec(self) -> Spec:
        loaded = self.loaded
        tensor = loaded.tensor(self.observe)
        who = (Input("side", (loaded.sides,)),) if loaded.sides > 1 else ()
        inputs = (Input(tensor, (loaded.tensors[tensor],)), *who)
        return Spec(inputs, Discrete(loaded.choices), players=loaded.sides, masked=True, who="side" if who else "")

    @property
    def zero_sum(self) -> bool:
        return self.loaded.zero_sum

    @property
    def draws(self) -> bool:
        return False

    @property
    def longest_episode(self) -> int:
        return int(self.loaded.game.max_game_length()) + 1  # a side that does not begin has a decision more

    def players(self, seed: int) -> tuple[int, ...]:
        sides = self.loaded.sides
        if self.opponent == "self":
            return tuple(range(sides))
        return (below(seed, sides) if self.side is None else self.side,)

    def evaluation_world(self) -> OpenSpiel:
        """Evaluate a policy that was trained on all sides against random players."""
        return replace(self, opponent="random") if self.sides > 1 else self

    def all_sides(self) -> OpenSpiel:
        if self.loaded.sides == 1:
            raise BadRequest(f"{self.game} has one side, so no opponent")
        return replace(self, opponent="self", side=None)

    def one_side(self, side: int) -> OpenSpiel:
        return replace(self, opponent="random", side=side)

    def reset(self, *players: int, seed: int) -> TurnBattle:
        loaded = self.loaded
        game = SpielGame(loaded, loaded.tensor(self.observe), seed)
        return TurnBattle(game, players, RandomPlayer(seed, self.spec) if len(players) < loaded.sides else None)
