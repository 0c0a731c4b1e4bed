"""Games of many pairs at once, against each pair by itself and against games that are stepped one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from evorl.matches.players import RULE, Player
from evorl.mdp.core import Box, Discrete, World
from evorl.mdp.duel import Duel
from evorl.mdp.duel.characters import Ground
from evorl.mdp.pong import Pong
from evorl.nets.policy import Net
from evorl.opponents.play import PAIRS, ROWS, Matches, Outcome, Pair, alike
from evorl.opponents.seats import AHEAD, MatchKeys, keyed_noise
from evorl.rl.dqn import DQN
from evorl.rl.ppo import PPO
from evorl.training.train import spec
from evorl.util.seed import Episodes

PONG = Pong(rounds=2, round_steps=60)
DUEL = Duel(ground=Ground(limit=20))
SMALL = PPO(net=Net(hidden=(8,)))
CORE = PPO(net=Net(hidden=(8,), lstm=6))


def player(seed: int, hyper: Any = SMALL, world: World = PONG) -> Player:
    """A policy of random weights, so large that policies differ."""
    learner = hyper.learner(spec(world), seed, torch.device("cpu"))
    learner.theta.add_(torch.randn(len(learner.theta), generator=torch.Generator().manual_seed(seed)))
    return Player(f"p{seed}", f"{seed:03}", learner=learner, form=repr(hyper))


def play(players: Sequence[Player], pairs: Sequence[Pair], world: World = PONG, **keys: Any) -> dict[Pair, Outcome]:
    matches = Matches(world, tuple(players), keys.get("seed", 0), keys.get("deterministic", False))
    return {one.pair: one for task in alike(pairs, players, 99) for one in matches.outcomes(task)}


def everyone(count: int, first: int = 0, end: int = 24) -> list[Pair]:
    return [Pair(a, b, first, end) for a in range(count) for b in range(a + 1, count)]


@pytest.mark.slow_cases("duel")
@pytest.mark.parametrize(
    ("world", "hypers"),
    [(PONG, [SMALL] * 4), (PONG, [CORE, CORE, SMALL, DQN(net=Net(hidden=(8,)))]), (DUEL, [SMALL] * 3)],
    ids=["pong", "other forms", "duel"],
)
def test_a_pair_has_the_same_games_alone_as_among_others(world: World, hypers: Sequence[Any]) -> None:
    players = [player(seed, hyper, world) for seed, hyper in enumerate(hypers)]
    together = play(players, everyone(len(players)), world)
    for pair in everyone(len(players)):
        assert play(players, [pair], world) == {pair: together[pair]}
    assert len({tuple(one.lengths) for one in together.values()}) > 1


def test_a_pair_that_comes_later_has_the_same_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair that takes over from another one begins in the middle of games that count for nobody."""
    players, pairs = [player(seed) for seed in range(4)], everyone(4, end=50)
    together = play(players, pairs)
    monkeypatch.setattr("evorl.opponents.play.PAIRS", 2)
    assert play(players, pairs) == together
    assert len(pairs) < PAIRS


def test_more_games_begin_with_those_of_fewer() -> None:
    players, pairs = [player(seed) for seed in range(2)], [Pair(0, 1, 0, 46)]
    (many,) = play(players, pairs).values()
    for first, end in ((0, 6), (0, 20), (20, 46), (40, 42)):
        (few,) = play(players, [Pair(0, 1, first, end)]).values()
        assert (few.points, few.lengths) == (many.points[first:end], many.lengths[first:end])


def test_a_policy_against_itself_is_as_good_as_itself() -> None:
    """Both games of a key are the same, with the two names exchanged."""
    players = [player(0), replace(player(0), fingerprint="other")]
    ((_, earned, lengths, _),) = play(players, everyone(2, end=40)).values()
    assert [x + y for x, y in zip(earned[::2], earned[1::2], strict=True)] == [1.0] * 20
    assert lengths[::2] == lengths[1::2] and len({*lengths}) >= 3


@pytest.mark.slow_cases(but=("False",))
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_game_is_what_its_two_policies_do_in_it(deterministic: bool) -> None:
    """Game by game in an arena of its own, with policies that decide one after the other."""
    players = [player(seed) for seed in (1, 2)]
    ((_, earned, lengths, margins),) = play(players, [Pair(0, 1, 0, 8)], deterministic=deterministic).values()
    for number in range(8):
        left, right = players if number % 2 == 0 else players[::-1]
        arena = PONG.all_sides().arena(2, MatchKeys(0, "match", True, number - number % 2))
        won, steps, lead = _slowly(arena, (left, right), number, deterministic)
        assert (won if number % 2 == 0 else 1 - won, steps) == (earned[number], lengths[number])
        assert margins[number] == pytest.approx(lead if number % 2 == 0 else -lead)


def _slowly(arena: Any, policies: Sequence[Player], number: int, deterministic: bool) -> tuple[float, int, float]:
    """What the left side wins, the steps of the game, and half of what it earns more than the right side."""
    streams, earned = Episodes(0, "match noise", evaluation=True), np.zeros(2)
    for step in range(10**4):
        now, actions = arena.recv(), []
        for side, one in enumerate(policies):
            keys = streams(np.array([number // 2]), np.array([side]))
            noise = torch.from_numpy(keyed_noise(Discrete(3), keys, np.array([step]), 1)[0])
            rows = torch.from_numpy(now.inputs[0][side : side + 1])
            assert one.learner is not None
            noise = torch.zeros_like(noise) if deterministic else noise
            actions.append(one.learner.act((rows,), None, noise, None, None).played)
        arena.send(np.arange(2), torch.cat(actions).numpy())
        now = arena.recv()
        earned += now.reward.sum(1)
        if results := dict(now.results):
            return results[0]["win"], step + 1, float(earned[0] - earned[1]) / 2
    raise AssertionError("the game has no end")


@pytest.mark.parametrize("world", [PONG, DUEL], ids=["pong", "duel"])
def test_the_rule_player_plays_by_the_world_as_it_is(world: World) -> None:
    players = [player(0, SMALL, world), player(1, SMALL, world), Player(RULE, RULE)]
    pairs = [Pair(0, 2, 0, 24), Pair(1, 2, 0, 24)]
    together = play(players, pairs, world)
    assert play(players, pairs[1:], world) == {pairs[1]: together[pairs[1]]}
    if world is PONG:  # it follows the ball, and a policy of random weights does not
        assert all(np.mean(one.points) < 0.35 for one in together.values())


def test_a_pair_with_the_rule_player_is_told_before_the_last_game_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it can be kept, whatever happens then."""
    players = [*(player(seed) for seed in range(3)), Player(RULE, RULE)]
    pairs = [Pair(0, 3, 0, 24), Pair(1, 3, 0, 24), Pair(2, 3, 0, 24)]
    matches, ended = Matches(PONG, tuple(players), 0, False), list[Pair]()
    games = matches._run

    def counted(world: World, side: int | None, pairs: Sequence[Pair]) -> Any:
        for pair, told in games(world, side, pairs):
            ended.append(pair)
            yield pair, told

    monkeypatch.setattr(Matches, "_run", lambda _, *arguments: counted(*arguments))
    first = next(matches.outcomes(pairs))
    assert len(ended) == 4 and sorted(ended[:3]) == pairs and first.pair == ended[3]


def test_games_end_as_they_did_before_whatever_the_seed_of_another_matrix() -> None:
    players, pairs = [player(seed) for seed in range(2)], everyone(2)
    assert play(players, pairs, seed=3) == play(players, pairs, seed=3) != play(players, pairs, seed=4)


def test_keys_are_those_of_the_number_of_a_game() -> None:
    every = MatchKeys(0, "match", True, 40, 3, ROWS)
    numbers = every.number(np.arange(ROWS)[:, None], np.arange(3))
    assert sorted(numbers.reshape(-1)) == list(range(40, 100))
    assert (every.number(np.arange(2 * ROWS)[:, None], np.arange(3, 6)) == np.tile(numbers, (2, 1))).all()
    keys = every(np.arange(ROWS), 0)
    assert (keys[::2] == keys[1::2]).all() and len({*keys.tolist()}) == ROWS // 2 and (keys % 2 == 1).all()
    halves = [MatchKeys(0, "match", True, 40 + side, 3, ROWS // 2, 2) for side in (0, 1)]
    both = np.stack([half.number(np.arange(ROWS // 2)[:, None], np.arange(3)) for half in halves])
    assert sorted(both.reshape(-1)) == list(range(40, 100))
    assert (halves[0](np.arange(5), 1) == halves[1](np.arange(5), 1)).all()


def test_noise_is_that_of_its_distribution_and_of_the_decision_alone() -> None:
    keys = Episodes(0, "x")(np.arange(400), 0)
    for action, law in ((Discrete(3), stats.gumbel_r), (Box((-1.0,), (1.0,)), stats.norm)):
        drawn = keyed_noise(action, keys, np.zeros(400, np.int64), AHEAD)
        assert stats.kstest(drawn.reshape(-1), law.cdf).pvalue > 1e-3
        later = keyed_noise(action, keys[:2], np.array([0, 10]), 5)
        assert np.array_equal(later, [drawn[0, :5], drawn[1, 10:15]])


@pytest.mark.slow_cases(but=("memory",))
@pytest.mark.parametrize(
    "hypers", [[SMALL, SMALL], [CORE, CORE], [CORE, SMALL], [SMALL]], ids=["alike", "memory", "other forms", "rule"]
)
def test_a_film_shows_the_game_that_was_played(hypers: Sequence[Any]) -> None:
    """The number of its pictures is that of the game's steps, which differs from game to game."""
    long = replace(PONG, rounds=9, round_steps=200)
    players = [player(seed, hyper) for seed, hyper in enumerate(hypers)]
    players += [Player(RULE, RULE)] * (len(players) == 1)
    (outcome,) = play(players, [Pair(0, 1, 0, 60)], long).values()
    matches = Matches(long, tuple(players), 0, False)
    numbers = [outcome.lengths.index(length) for length in sorted({*outcome.lengths})][-3:]
    shown = [sum(1 for _ in matches.film(Pair(0, 1, number, number + 1)).frames) for number in numbers]
    assert len(numbers) > 1
    assert shown == [outcome.lengths[number] + 1 for number in numbers]
