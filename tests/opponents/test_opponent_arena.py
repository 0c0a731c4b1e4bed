"""Games of the learner against frozen policies, as an arena of its own sides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
import torch

from evorl.mdp import check
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Arena, Array, Discrete, Input, Spec, State, Step, World
from evorl.mdp.duel import Duel
from evorl.mdp.pong import Pong
from evorl.mdp.soccer import Soccer
from evorl.nets.distributions import noise_size
from evorl.nets.policy import Net
from evorl.opponents.arena import NOBODY, RESULT, RETURN, OpponentArena
from evorl.opponents.deciders import Deciders
from evorl.opponents.pool import LATEST, OWN, RULE, RUNS, Game, Table
from evorl.opponents.sampler import game_of
from evorl.rl.actor import Player
from evorl.rl.core import Episode
from evorl.rl.evaluation import EvaluationNoise, play_slots
from evorl.rl.ppo import PPO
from evorl.util.heartbeat import send_heartbeat
from evorl.util.seed import Episodes

SMALL = Net(hidden=(8,))
PONG = Pong(rounds=2, round_steps=60).all_sides()
DUEL = Duel().all_sides()


@dataclass(frozen=True, kw_only=True)
class Turns(BattleWorld):
    """Players in a ring name a number in turn, the last one first; each sees the sum of what was named before."""

    count: int = 2
    rounds: int = 3

    @property
    def spec(self) -> Spec:
        return Spec(inputs=(Input("sum", (2,)),), action=Discrete(3), players=self.count)

    def reset(self, *players: int, seed: int) -> TurnsBattle:
        return TurnsBattle(self, players, seed)


class TurnsBattle:
    def __init__(self, world: Turns, players: Sequence[int], seed: int) -> None:
        self.world, self.sum, self.turn = world, seed % 7, 0
        self.controllers = [Turn(self, player) for player in players]
        self.changed: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        self.changed = asyncio.Event()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def mover(self) -> int:
        return self.world.count - 1 - self.turn % self.world.count

    @property
    def over(self) -> bool:
        return self.turn >= self.world.rounds * self.world.count


class Turn:
    def __init__(self, battle: TurnsBattle, player: int) -> None:
        self.battle, self.player = battle, player

    @property
    def state(self) -> State:
        return State((np.array([self.battle.sum, self.player], np.float32),))

    async def __call__(self, action: Array) -> Step:
        battle = self.battle
        assert battle.changed is not None
        while battle.mover() != self.player and not battle.over:
            await battle.changed.wait()
        battle.sum, battle.turn = battle.sum + int(action[0]), battle.turn + 1
        battle.changed.set()
        battle.changed = asyncio.Event()
        while battle.mover() != self.player and not battle.over:
            await battle.changed.wait()
        return Step(np.array([battle.sum * (1 if self.player else -1)], np.float32), battle.over)

    def result(self) -> Mapping[str, float]:
        return {"sum": self.battle.sum}


def policy(world: World, seed: int, **keys: Any) -> Any:
    arena = world.arena(world.sides, Episodes(0, "spec"))
    arena.close()
    return PPO(**{"net": SMALL, **keys}).learner(arena.spec, seed, torch.device("cpu"))


def table_of(world: World, chances: Sequence[float], **keys: Any) -> Table:
    """Snapshots with numbers 10, 11, ... whose weights are of seeds of their own."""
    weights = [policy(world, 10 + number, **keys).weights() for number in range(len(chances) - 1)]
    return Table(10 + np.arange(len(weights)), np.array(chances), weights, np.full(len(weights), OWN))


def mixed_table(world: World, chances: Sequence[float], forms: Sequence[Any]) -> Table:
    """A snapshot with the number 10, the rule player, and policies of other forms."""
    numbers = np.array([10, RULE, *(RUNS - n for n in range(len(forms)))])
    weights = [policy(world, 10).weights(), [], *(one.weights() for one in forms)]
    return Table(numbers, np.array(chances), weights, np.array([OWN, OWN, *range(1, 1 + len(forms))]))


def against(
    world: World, games: int, episodes: Episodes, table: Table, deterministic: bool = True,
    sides: Sequence[int] | None = None, forms: Sequence[Any] = (), **keys: Any,
) -> OpponentArena:  # fmt: skip
    """``forms``: policies of further forms."""
    learner, team = policy(world, 1, **keys), world.team_sides
    deciders = Deciders([learner, *forms], games * (world.sides - team))
    whole = world.arena(games * world.sides, episodes)
    arena = OpponentArena(whole, episodes, deciders, deterministic, "noise", 7, sides=sides, team=team)
    arena.use(table, learner.weights(), 0)
    return arena


@dataclass(frozen=True, kw_only=True)
class Opposed(World):
    """A world of one side, whose other sides are played by two snapshots and the first weights of the learner."""

    world: World
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def sides(self) -> int:
        return self.world.team_sides

    def arena(self, slots: int, episodes: Episodes) -> Arena:
        return against(
            self.world,
            slots // self.sides,
            episodes,
            table_of(self.world, (0.2, 0.5, 0.3), **self.keys),
            False,
            **self.keys,
        )


@dataclass(frozen=True, kw_only=True)
class Pairs(Turns):
    """Four in turn, of whom the first two and the last two are a team."""

    count: int = 4

    @property
    def team_sides(self) -> int:
        return 2


TEAMS = Soccer(team_size=2, control="player", seconds=3).all_sides()
WORLDS = {
    "pong": PONG, "duel": DUEL, "turns": Turns(), "three in turn": Turns(count=3), "teams": TEAMS,
    "pairs in turn": Pairs(),
}  # fmt: skip


@pytest.mark.slow_cases(but=("teams-recurrent", "turns-memoryless", "pong-recurrent"))
@pytest.mark.parametrize("keys", [{}, {"net": Net(hidden=(8,), lstm=4)}], ids=["memoryless", "recurrent"])
@pytest.mark.parametrize("name", WORLDS)
def test_it_is_an_arena_as_any_other(name: str, keys: dict[str, Any]) -> None:
    """Repeats with the same keys and actions, and goes on from a saved state, bit for bit."""
    team = WORLDS[name].team_sides
    check(Opposed(world=WORLDS[name], keys=keys), slots=5 if team == 1 else 3 * team, decisions=40)


@pytest.mark.slow_cases("duel")  # the longest, with two sides as pong
@pytest.mark.parametrize("name", WORLDS)
def test_against_itself_it_plays_the_games_of_all_sides(name: str) -> None:
    """With one deterministic policy on every side, it does not matter who decides for which.

    The return of the opponent is that of its sides.
    """
    world, games, number = WORLDS[name], 6, 4
    team = world.team_sides
    learner, episodes = policy(world, 1), Episodes(5, "games")
    mine = against(world, games, episodes, table_of(world, (1.0,)))
    seen = play_slots(mine, learner, EvaluationNoise(mine, 0, deterministic=True), [number] * games * team)
    whole = world.arena(games * world.sides, episodes)
    noise = EvaluationNoise(whole, 0, deterministic=True)
    wanted = play_slots(whole, learner, noise, [number] * games * world.sides)
    for game in range(games):
        for n in range(number):
            own = (game + n) * team % world.sides
            others = [
                wanted[game * world.sides + side][n].ret for side in range(world.sides) if side // team != own // team
            ]
            for member in range(team):
                same = wanted[game * world.sides + own + member][n]
                found = seen[game * team + member][n]
                assert found.results.pop(RESULT) == LATEST
                assert found.results.pop(RETURN) == pytest.approx(np.mean(others), abs=1e-5)
                assert found == same
    for arena in (mine, whole):
        arena.close()


def played(arena: Arena, world: World, number: int) -> list[list[Episode]]:
    """The first episodes of each game, of which the learner's are deterministic."""
    found = play_slots(arena, policy(world, 1), EvaluationNoise(arena, 0, deterministic=True), [number] * arena.slots)
    arena.close()
    return found


@pytest.mark.slow_cases("duel")
@pytest.mark.parametrize("name", ["pong", "duel", "teams"])
def test_against_the_rule_player_it_plays_the_games_of_one_side(name: str) -> None:
    world, games, episodes = WORLDS[name], 4, Episodes(6, "rule")
    table = Table(np.array([RULE]), np.array([0.0, 1.0]), [[]], np.array([OWN]))
    mine = played(against(world, games, episodes, table), world, 4)
    team = world.team_sides
    wanted = [played(world.one_side(side).arena(games * team, episodes), world, 4) for side in range(2)]
    for slot in range(games * team):
        for n in range(4):
            assert mine[slot][n].results.pop(RESULT) == RULE
            assert mine[slot][n].results.pop(RETURN) == pytest.approx(-mine[slot][n].ret)
            assert mine[slot][n] == wanted[(slot // team + n) % 2][slot][n]


@pytest.mark.slow_cases("duel")
@pytest.mark.parametrize("name", ["pong", "duel"])
def test_a_game_does_not_depend_on_who_plays_the_others(name: str) -> None:
    """Policies of several forms and the rule player side by side: each game is that of its own opponent alone."""
    world, games, episodes = WORLDS[name], 8, Episodes(7, "mixed")
    forms = [policy(world, 20, net=Net(hidden=(4, 4))), policy(world, 21, net=Net(hidden=(4,), lstm=3))]

    def episodes_against(chances: Sequence[float]) -> list[list[Episode]]:
        return played(against(world, games, episodes, mixed_table(world, chances, forms), forms=forms), world, 3)

    mixed = episodes_against((0.2, 0.2, 0.2, 0.2, 0.2))
    numbers = (LATEST, 10, RULE, RUNS, RUNS - 1)
    alone = {number: episodes_against(np.eye(5)[place].tolist()) for place, number in enumerate(numbers)}
    assert {episode.results[RESULT] for game in mixed for episode in game} == {*numbers}
    for game in range(games):
        for n in range(3):
            assert mixed[game][n] == alone[int(mixed[game][n].results[RESULT])][game][n]


def test_opponents_come_by_turns_against_every_side() -> None:
    forms = [policy(PONG, 20, net=Net(hidden=(4,)))]
    table = mixed_table(PONG, (0.0, 0.4, 0.3, 0.3), forms)._replace(cycle=True)
    order = [10, RULE, RUNS]
    for game, met in enumerate(played(against(PONG, 3, Episodes(3, "turns"), table, forms=forms), PONG, 7)):
        assert [episode.results[RESULT] for episode in met] == [order[(game + n // 2) % 3] for n in range(7)]


def test_the_learner_plays_the_sides_that_it_is_to() -> None:
    episodes, table = Episodes(8, "sides"), mixed_table(PONG, (0.0, 0.0, 1.0), [])
    mine = played(against(PONG, 3, episodes, table, sides=(1,)), PONG, 3)
    right = played(PONG.one_side(1).arena(3, episodes), PONG, 3)
    assert [[one.rewards for one in game] for game in mine] == [[one.rewards for one in game] for game in right]


def opponents_met(table: Table, games: int, decisions: int, world: World = PONG) -> list[list[int]]:
    """The opponents of the successive episodes of each game."""
    arena = against(world, games, Episodes(3, "met"), table)
    player, met = Player(arena, policy(world, 1)), [[] for _ in range(games)]
    rows = np.arange(games)
    for _ in range(decisions):
        player.send(rows, player.decide(torch.zeros(games, 3)))
        now, over = player.recv()
        rows = now.slots
        for slot, episode in over:
            met[slot].append(int(episode.results[RESULT]))
    arena.close()
    return met


def test_opponents_come_as_often_as_the_table_says() -> None:
    met = Counter(number for game in opponents_met(table_of(PONG, (0.25, 0.5, 0.25)), 64, 700) for number in game)
    total = met.total()
    assert total > 300
    for number, chance in ((LATEST, 0.25), (10, 0.5), (11, 0.25)):
        assert abs(met[number] / total - chance) < 4 * (chance * (1 - chance) / total) ** 0.5


def test_the_opponent_of_an_episode_does_not_depend_on_the_other_games() -> None:
    table = table_of(PONG, (0.25, 0.5, 0.25))
    few, many = opponents_met(table, 3, 700), opponents_met(table, 9, 700)
    assert all(len(game) > 3 for game in few)
    assert [game[:4] for game in few] == [game[:4] for game in many[:3]]


def test_who_plays_goes_on_with_its_weights_when_the_table_changes() -> None:
    """A snapshot that has left plays its games to their ends; the latest policy is the newest at once."""
    arena = against(PONG, 8, Episodes(4, "change"), table_of(PONG, (0.5, 0.5)))
    arena.recv()
    decider, before = arena._deciders.forms[OWN], arena.opponent.copy()
    assert {LATEST, 10} == {*before.tolist()}
    arena.send(np.arange(8), np.ones((8, 1), np.int64))
    held = [decider.weights_of(game)[0].clone() for game in range(8)]
    newer = policy(PONG, 77).weights()
    known = [policy(PONG, 78).weights(), table_of(PONG, (0, 1)).weights[0]]
    arena.use(Table(np.array([11, 10]), np.array([0.0, 1.0, 0.0]), known, np.zeros(2, np.int64)), newer, 1)
    arena.recv()
    arena.send(np.arange(8), np.ones((8, 1), np.int64))
    assert arena.opponent.tolist() == before.tolist()
    for game in range(8):
        wanted = newer[0] if before[game] == LATEST else held[game]
        assert torch.equal(decider.weights_of(game)[0], wanted)
    arena.close()


def test_a_state_of_another_number_of_games_is_refused() -> None:
    four, five = (against(PONG, games, Episodes(0, "x"), table_of(PONG, (1.0,))) for games in (4, 5))
    four.recv()
    with pytest.raises(ValueError, match="the state holds 4 games, this arena 5"):
        five.load_state_dict(four.state_dict())


def test_returns_of_sides_that_have_ended_are_saved() -> None:
    """The learner may be told of the end of a game after the state was saved."""
    one, other = (against(PONG, 4, Episodes(0, "x"), table_of(PONG, (1.0,))) for _ in range(2))
    one.recv()
    one._whole[:], one._return[:], one._sent[::2] = np.arange(8), np.arange(8) / 2, True
    other.load_state_dict(one.state_dict())
    for name in ("_whole", "_return", "_sent"):
        assert getattr(other, name).tolist() == getattr(one, name).tolist()
    one.close()
    other.close()


def test_nobody_is_an_opponent_before_a_table_is_there() -> None:
    learner = policy(PONG, 1)
    arena = OpponentArena(PONG.arena(8, Episodes(0, "x")), Episodes(0, "x"), Deciders([learner], 4), False, "noise")
    assert arena.opponent.tolist() == [NOBODY] * 4


def test_opponents_decide_while_the_learner_waits_with_some_of_its_slots() -> None:
    """A slot that has its decisions of a batch waits; the games of the others go on."""
    arena = against(Duel(side="both"), 6, Episodes(2, "wait"), table_of(DUEL, (1.0,)))
    player = Player(arena, policy(DUEL, 1))
    noise = torch.zeros(6, noise_size(arena.spec.action))
    made = np.zeros(6, np.int64)
    while (made < 30).any():
        rows = np.flatnonzero(player.waiting & (made < 30))
        if len(rows):
            player.send(rows, player.decide(noise))
            made[rows] += 1
        elif not player.waiting.all():
            player.recv()
    arena.close()


def test_each_round_of_the_opponents_sends_a_heartbeat() -> None:
    """They may decide often before the learner must."""
    beats: list[int] = []
    arena = against(Turns(count=4).all_sides(), 2, Episodes(2, "beats"), table_of(Turns(count=4), (1.0,)), sides=[0])
    received, recv = list[int](), arena.arena.recv

    def watched() -> Any:
        received.append(len(beats))
        return recv()

    arena.arena.recv = watched  # type: ignore[method-assign]
    token = send_heartbeat.set(lambda: beats.append(0))
    for _ in range(4):
        slots = arena.recv().slots
        arena.send(slots, np.zeros((len(slots), 1), np.int64))
    send_heartbeat.reset(token)
    arena.close()
    assert len(received) > 4 and received == [*range(1, len(received) + 1)]


def test_chances_may_be_those_of_the_side_that_the_learner_has() -> None:
    table = table_of(PONG, (0.0, 0.5, 0.5))._replace(chances=np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]))
    arena, met = against(PONG, 8, Episodes(0, "sides"), table), Counter[tuple[int, int]]()
    player = Player(arena, policy(PONG, 1))
    rows, noise = np.arange(8), EvaluationNoise(arena, 0, True)
    met.update(zip((arena._side % 2).tolist(), arena.opponent.tolist(), strict=True))
    while met.total() < 100:
        player.send(rows, player.decide(noise.take(rows)))
        now, over = player.recv()
        rows = now.slots
        met.update((int(arena._side[slot]) % 2, int(arena.opponent[slot])) for slot, _ in over)
    assert met.keys() == {(0, 10), (1, 11), (1, LATEST)}
    assert met[0, 10] == pytest.approx(met.total() / 2, abs=5) and met[1, 11] > 10 < met[1, LATEST]
    arena.close()


@pytest.mark.parametrize(("own", "other", "wanted"), [([3, 1], 1.5, 1.0), ([3, 1], 2, 0.5), ([-1, -2], -1, 0.0)])
def test_a_world_that_does_not_say_who_has_won_has_the_greater_return(
    own: list[float], other: float, wanted: float
) -> None:
    team = [Episode(ret, 5, (ret,), {RESULT: 10, RETURN: other}) for ret in own]
    assert game_of(team) == Game(10, wanted)
    assert all(not episode.results for episode in team)  # metrics are of what the world reports


def test_who_has_won_is_what_the_world_says() -> None:
    assert game_of([Episode(-5.0, 5, (-5.0,), {RESULT: LATEST, RETURN: 5.0, "win": 1.0})]) == Game(LATEST, 1.0)
