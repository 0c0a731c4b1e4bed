"""Judging is a pure function of the weights, the world, the seed and the mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from rl_toys import Game, Games, GameWorld, Pushing, Scripted, Wandering, episodes

from evorl.mdp.core import Array, Discrete, Input, Spec, State, Step, World
from evorl.mdp.gymnasium import Gymnasium
from evorl.nets.policy import Net
from evorl.record.metrics import check
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import NotFinite
from evorl.rl.evaluation import EvaluationNoise, evaluate_policy, fitness, play_episodes, play_slots, summary
from evorl.rl.policy_gradient import PolicyGradient
from evorl.rl.ppo import PPO
from evorl.util.seed import Episodes

torch.set_num_threads(1)


def learner_of(game: type[Game], lstm: int = 0, seed: int = 0) -> PolicyGradient:
    return PPO(net=Net(lstm=lstm, hidden=(8, 8))).learner(game.spec, seed, torch.device("cpu"))


class Echo(Game):
    """One decision an episode; the action itself is the reward. The results say which episode it was."""

    spec = Spec((Input("x", (2,)),), Discrete(3))

    def state(self) -> State:
        return State((np.array([self.draw(0), self.draw(1)], np.float32),))

    def step(self, action: Array) -> Step:
        self.t += 1
        return Step(np.array([action[0]], np.float32), terminated=True)

    def result(self) -> dict[str, float]:
        return {"slot": self.slot, "odd": self.key & 1, "key": float(self.key), "x": self.draw(0), "y": self.draw(1)}


def opinionated(learner: PolicyGradient) -> PolicyGradient:
    """A policy far from uniform that depends on what it sees."""
    named = learner.layout.unflatten(learner.theta)
    named["hidden.0.weight"].mul_(3)
    named["hidden.1.weight"].mul_(3)
    named["policy.weight"].mul_(300)
    return learner


@pytest.mark.parametrize("count", [1, 7, 64, 150])
def test_each_slot_plays_its_fixed_share(count: int) -> None:
    played = play_episodes(learner_of(Echo), GameWorld(game=Echo), 4, count, deterministic=False)
    slots = min(count, 64)
    assert [int(e.results["slot"]) for e in played] == [n % slots for n in range(count)]
    keys = Episodes(4, "evaluate", evaluation=True)
    assert [e.results["key"] for e in played] == [float(keys(n % slots, n // slots)) for n in range(count)]
    assert all(e.results["odd"] for e in played)


def test_a_slot_rests_from_the_end_of_its_last_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Gymnasium(id="CartPole-v1", vector=False, kwargs={"sutton_barto_reward": True}).arena(3, Episodes(1))
    rested: list[tuple[int, int]] = []
    steps = 0
    send, rest = arena.send, arena.stop_slot

    def counted(slots: Array, actions: Array) -> None:
        nonlocal steps
        steps += 1
        send(slots, actions)

    monkeypatch.setattr(arena, "send", counted)
    monkeypatch.setattr(arena, "stop_slot", lambda slot: (rested.append((slot, steps)), rest(slot)))
    learner = PPO(net=Net(hidden=(8, 8))).learner(arena.spec, 0, torch.device("cpu"))
    done = play_slots(arena, learner, EvaluationNoise(arena, 0, deterministic=True), [2, 0, 1])
    arena.close()
    assert [len(one) for one in done] == [2, 0, 1]
    assert sorted(rested) == [(0, sum(e.length for e in done[0])), (1, 0), (2, done[2][0].length)]


def test_the_deterministic_policy_takes_the_mode() -> None:
    learner = opinionated(learner_of(Echo))
    played = play_episodes(learner, GameWorld(game=Echo), 4, 64, deterministic=True)
    x = torch.tensor([[e.results["x"], e.results["y"]] for e in played], dtype=torch.float32)
    want = learner.act((x,), None, torch.zeros(64, 3), None, None).action.flatten().tolist()
    assert [e.ret for e in played] == want and len(set(want)) == 3


def test_the_stochastic_policy_follows_its_probabilities() -> None:
    """A constant state-independent preference; 640 draws; five standard deviations."""
    learner = learner_of(Echo)
    named = learner.layout.unflatten(learner.theta)
    named["policy.weight"].zero_()
    named["policy.bias"].copy_(torch.tensor([0.5, 0.3, 0.2]).log())
    drawn = [e.ret for e in play_episodes(learner, GameWorld(game=Echo), 4, 640, deterministic=False)]
    for action, p in enumerate((0.5, 0.3, 0.2)):
        assert abs(drawn.count(action) / 640 - p) < 5 * (p * (1 - p) / 640) ** 0.5


@pytest.mark.slow_cases(but=("Pushing-6",))
@pytest.mark.parametrize("lstm", [0, 6])
@pytest.mark.parametrize("game", [Wandering, Pushing])
def test_the_same_bits_whatever_else_happens(game: type[Game], lstm: int) -> None:
    learner = learner_of(game, lstm)
    world = GameWorld(game=game)
    first = evaluate_policy(learner, world, 3, 12)
    assert evaluate_policy(learner, world, 3, 12) == first
    state = learner.state_dict()
    actor = Actor(Games(game, 5, episodes()), learner, 0, 0, PolicyGradientBatch.empty(game.spec, 8, 5, lstm))
    actor.collect(0)
    assert evaluate_policy(learner, world, 3, 12) == first  # play in between changes nothing
    learner.update(actor.batch, 0, 0)
    assert evaluate_policy(learner, world, 3, 12) != first
    learner.load_state_dict(state)
    assert evaluate_policy(learner, world, 3, 12) == first
    assert evaluate_policy(learner, world, 4, 12) != first


@pytest.mark.slow_cases(but=("6-True",))
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("lstm", [0, 6])
def test_the_order_of_arrivals_does_not_matter(lstm: int, deterministic: bool) -> None:
    learner = learner_of(Wandering, lstm)
    lockstep = play_episodes(learner, GameWorld(game=Wandering), 3, 20, deterministic=deterministic)
    for order in range(2):
        assert (
            play_episodes(learner, GameWorld(game=Wandering, order=order), 3, 20, deterministic=deterministic)
            == lockstep
        )


class Ending(Scripted):
    ends: ClassVar = ("..X../", "/.", "...X", "......./")

    def result(self) -> dict[str, float]:
        return {"fitness": self.slot * 2.0, "win": 1.0}


def played_alone(slot: int, count: int) -> list[tuple[float, int]]:
    """Return and length of a slot's first episodes; actions do not matter."""
    game, out, ret = Ending(), [], 0.0
    game.begin(slot, 0)
    while len(out) < count:
        step = game.step(np.zeros(1))
        ret += float(step.reward.sum())
        if step.over:
            out.append((ret, game.t))
            game.begin(slot, 0)
            ret = 0.0
    return out


def test_the_numbers_of_a_scripted_world() -> None:
    metrics = evaluate_policy(learner_of(Ending), GameWorld(game=Ending), 0, 100)
    pairs = [played_alone(n % 64, 2)[n // 64] for n in range(100)]
    returns = np.array([ret for ret, _ in pairs])
    for name in ("return", "stochastic_return"):
        assert metrics[f"eval/{name}_mean"] == pytest.approx(returns.mean())
        assert metrics[f"eval/{name}_std"] == pytest.approx(returns.std())
        assert metrics[f"eval/{name}_min"] == returns.min() and metrics[f"eval/{name}_max"] == returns.max()
    assert metrics["eval/length_mean"] == pytest.approx(np.mean([length for _, length in pairs]))
    assert metrics["eval/win_mean"] == 1
    assert fitness(metrics) == metrics["eval/fitness_mean"] == pytest.approx(np.mean([n % 64 * 2 for n in range(100)]))
    check(metrics)


def test_without_a_fitness_the_mean_return_is_it() -> None:
    assert fitness({"eval/return_mean": 3.0}) == 3.0


def test_spread() -> None:
    assert summary([1.0, 2.0, 6.0]) == {"mean": 3.0, "std": pytest.approx((14 / 3) ** 0.5), "min": 1.0, "max": 6.0}


def test_a_world_that_changes_rewards_reports_its_own_return_and_length() -> None:
    class Raw(Echo):
        def result(self) -> dict[str, float]:
            return {"return": 7.0, "length": 30.0, "win": 1.0}

    played = play_episodes(learner_of(Raw), GameWorld(game=Raw), 0, 5, deterministic=True)
    assert all((e.ret, e.length, e.results) == (7.0, 30.0, {"win": 1.0}) for e in played)


@dataclass(frozen=True, kw_only=True)
class TwoFaced(GameWorld):
    def evaluation_world(self) -> World:
        return GameWorld(game=Echo)


def test_a_world_may_be_evaluated_as_another() -> None:
    assert "odd" in play_episodes(learner_of(Echo), TwoFaced(game=Wandering), 0, 2, deterministic=True)[0].results


class Ill(Echo):
    def state(self) -> State:
        return State((np.array([1.0, np.nan if self.slot == 1 and self.episode > 1 else 0.0], np.float32),))

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.episode = getattr(self, "episode", 0) + 1


def test_the_arena_is_closed_also_after_a_failure() -> None:
    arenas = []

    class Watched(GameWorld):
        def arena(self, slots: int, episodes: Episodes) -> Games:
            arenas.append(super().arena(slots, episodes))
            return arenas[-1]

    with pytest.raises(NotFinite, match="input 'x' of slot 1"):
        play_episodes(learner_of(Ill), Watched(game=Ill), 0, 100, deterministic=True)
    play_episodes(learner_of(Echo), Watched(game=Echo), 0, 10, deterministic=True)
    assert [arena.closed for arena in arenas] == [True, True]
