"""Windows of ended episodes hold whole games, whatever their sides did and however long they were."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pytest
import torch

from evorl.ec.core import pack
from evorl.ec.sga import SGA
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Decisions, Discrete, Input, Spec, State, Step, StepsTogether
from evorl.mdp.decision_arrays import empty_decisions
from evorl.nets.policy import Net
from evorl.population.evaluation import evaluation_plan
from evorl.population.results import IndividualResult
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Episode
from evorl.rl.ended_games import EndedGames
from evorl.rl.evaluation import play_episodes
from evorl.rl.ppo import PPO
from evorl.training.experiment import Experiment
from evorl.training.train import Run
from evorl.util.seed import generator

torch.set_num_threads(1)


@dataclass(frozen=True, kw_only=True)
class Watch(BattleWorld):
    """A zero-sum game: one side decides up to nine times and loses, while the others wait and win.

    The key alone says which, so the game is symmetric: over its sides the mean return is 0, and of two sides the mean
    fitness is 0.5.
    """

    crowd: int = 2

    @property
    def spec(self) -> Spec:
        return Spec((Input("x", (1,)),), Discrete(2), players=self.crowd)

    def reset(self, *players: int, seed: int) -> WatchGame:
        return WatchGame(self.crowd, seed)


class WatchGame:
    def __init__(self, crowd: int, seed: int) -> None:
        draw = generator("watch", seed)
        self.length, self.busy = int(draw.integers(2, 10)), int(draw.integers(crowd))
        self.over = asyncio.Event()
        self.controllers: Sequence[WatchSide] = [WatchSide(self, side, crowd) for side in range(crowd)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class WatchSide:
    def __init__(self, game: WatchGame, side: int, crowd: int) -> None:
        self.game, self.busy, self.crowd, self.decided = game, game.busy == side, crowd, 0

    @property
    def state(self) -> State:
        return State((np.array([self.decided], np.float32),))

    async def __call__(self, action: Array) -> Step:
        self.decided += 1
        if not self.busy:
            await self.game.over.wait()
            return Step(np.array([1], np.float32), terminated=True, cost=self.game.length)
        over = self.decided == self.game.length
        if over:
            self.game.over.set()
        return Step(np.array([(1 - self.crowd) * over], np.float32), terminated=over)

    def result(self) -> Mapping[str, float]:
        return {"fitness": float(not self.busy)}


@pytest.mark.slow_cases("True-2", "False-3")
@pytest.mark.parametrize("crowd", [2, 3])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_symmetric_game_has_a_mean_of_zero_whoever_decides_most(asynchronous: bool, crowd: int) -> None:
    hyper = PPO(
        slots=48, horizon=16, minibatch=768, passes=1, net=Net(hidden=(4,)), lr=0.0,
        asynchronous=asynchronous,
    )  # fmt: skip
    run = Run(Experiment(mdp=Watch(crowd=crowd), rl=hyper))
    try:
        for _ in range(2):
            metrics = run.iterate().metrics
            assert metrics["train/episodes"] > 100 and metrics["train/episodes"] % crowd == 0
            assert metrics["train/return"] == 0 and metrics["train/fitness"] == (crowd - 1) / crowd
    finally:
        run.close()


def test_evaluations_play_whole_games() -> None:
    """Three episodes of a game of two are four: three would count the waiting side of one game only, or the other."""
    learner = PPO(net=Net(hidden=(4,))).learner(Watch().spec, 0, torch.device("cpu"))
    for count in (1, 3, 65):
        played = play_episodes(learner, Watch(), 0, count, deterministic=True)
        assert len(played) == count + 1 and sum(one.ret for one in played) == 0
    evolution = SGA(population=3, episodes=3)
    plan = evaluation_plan(Experiment(mdp=Watch(), rl=PPO(net=Net(hidden=(4,))), ec=evolution), evolution)
    (answer,) = plan.make(0).evaluate(pack(evolution.evolver(plan.space, 0).ask(1))).each
    result = IndividualResult(*answer)
    assert result.objectives == [0.5] and result.result["return"].tolist() in ([1, -1, 1, -1], [1, -1, -1, 1],
        [-1, 1, 1, -1], [-1, 1, -1, 1])  # fmt: skip


# ------------------------------------------------------------------ the order


def ended(name: int) -> Episode:
    return Episode(float(name), 1.0, (float(name),), {"fitness": 0.0})


def returns(found: list[Episode]) -> list[int]:
    return [int(one.ret) for one in found]


def test_games_leave_whole_and_by_the_clock_of_their_slowest_side() -> None:
    games = EndedGames(2)
    for clock, slot, name in [(9, 1, 11), (9, 3, 31), (2, 2, 20), (3, 0, 10), (9, 1, 12), (4, 2, 21), (5, 0, 13)]:
        games.add(clock, slot, ended(name))
    # game 1 after 2 decisions of its slower side, game 0 after 3 and 5; slot 2 has ended again, and waits for slot 3
    assert returns(games.take()) == [20, 31, 10, 11, 13, 12]
    again = EndedGames(2)
    again.load_state_dict(games.state_dict())
    for one in (games, again):
        assert one.take() == []
        one.add(1, 0, ended(14))
        one.add(6, 1, ended(15))
        one.add(7, 3, ended(32))  # its game ended in the batch before for the other side
        assert returns(one.take()) == [21, 32, 14, 15] and one.state_dict() == {}


def test_a_game_of_one_leaves_by_its_own_clock() -> None:
    games = EndedGames(1)
    for clock, slot in [(4, 0), (2, 2), (2, 1), (6, 2)]:
        games.add(clock, slot, ended(10 * slot + clock))
    assert returns(games.take()) == [12, 22, 4, 26]


class Ticking(StepsTogether):
    """Episodes of one decision in slot 0 and of four in slot 1. A slot rests for one step after each of its episodes,
    and is told of its end after that; the return of an episode is the step in which it ended."""

    spec, slots, sides = Spec((Input("x", (1,)),), Discrete(2)), 2, 1

    def __init__(self) -> None:
        self.now, self.step = empty_decisions(self.spec, 2), 0
        self.now.slots, self.decided, self.answered = np.arange(2), [0, 0], list[int]()
        self.ended: dict[int, dict[str, float]] = {}

    def send(self, slots: Array, actions: Array) -> None:
        self.answered += slots.tolist()

    def recv(self) -> Decisions:
        if self.answered:
            assert sorted(self.answered) == self.now.slots.tolist()
            self.advance(self.answered)
            while not len(self.now.slots):  # both rest
                self.advance([])
            self.answered = []
        return self.now

    def advance(self, deciding: list[int]) -> None:
        now, self.step = self.now, self.step + 1
        now.results = [(slot, self.ended.pop(slot)) for slot in [*self.ended]]
        for slot in deciding:
            self.decided[slot] += 1
            now.terminated[slot] = self.decided[slot] == (1, 4)[slot]
            if now.terminated[slot]:
                self.decided[slot], self.ended[slot] = 0, {"return": float(self.step)}
        now.slots = np.array([slot for slot in range(2) if slot not in self.ended], np.int64)


def test_slots_that_step_together_have_one_clock() -> None:
    """Slot 0 takes 16 steps for 8 decisions. What slot 1 plays after its own eighth is spread among them."""
    arena = Ticking()
    learner = PPO(net=Net(hidden=(4,))).learner(arena.spec, 0, torch.device("cpu"))
    actor = Actor(arena, learner, 0, 0, PolicyGradientBatch.empty(arena.spec, 8, 2, 0))
    _, games = actor.collect(0)
    assert returns(games) == sorted(returns(games)) and {4, 9, 14} < {*returns(games)}
