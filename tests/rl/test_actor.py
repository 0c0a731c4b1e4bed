"""Collecting: batches against slots played one at a time; any order of arrivals gives the same bits."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Game, Games, Pushing, Scripted, Wandering, episodes
from torch import Tensor

from evorl.mdp.core import Array, Discrete, Input, Spec, State, Step, WorldError
from evorl.nets.distributions import draw_noise
from evorl.nets.policy import Net
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Decision, NotFinite
from evorl.rl.ppo import PPO
from evorl.util.seed import generator

torch.set_num_threads(1)


class Simple:
    """A learner whose every number is told by hand: V = (sum of the state, 10 n + t), log pi = -|noise|.

    With a carry, it counts the decisions of the episode: [0] as kept, [1] ten times that.
    """

    def __init__(self, spec: Spec, remembers: bool = False) -> None:
        self.spec, self.remembers = spec, remembers

    def carry(self, slots: int) -> Tensor | None:
        return torch.zeros(2, slots, 1) if self.remembers else None

    def act(self, inputs: Any, legal: Any, noise: Tensor, carry: Tensor | None, start: Tensor | None) -> Decision:
        (x,) = inputs
        value = torch.stack([x.sum(-1), 10 * x[:, 1] + x[:, 2]], -1)
        action = noise.argmax(-1, keepdim=True)
        if carry is not None and start is not None:
            count = carry[0] * (~start).float().unsqueeze(-1) + 1
            value, carry = value + 1000 * count, torch.stack([count, 10 * count])
        return Decision(action, action, -noise.abs().sum(-1), value, carry)


def actor_of(learner: Any, arena: Games, horizon: int, seed: int = 3, member: int = 0) -> Actor:
    width = 0 if learner.carry(1) is None else learner.carry(1).shape[-1]
    return Actor(arena, learner, seed, member, PolicyGradientBatch.empty(arena.spec, horizon, arena.slots, width))


def snapshot(batch: PolicyGradientBatch) -> dict[str, Any]:
    """Copies of all tensors of a batch."""
    out: dict[str, Any] = {}
    for one in fields(PolicyGradientBatch):
        value = getattr(batch, one.name)
        if isinstance(value, tuple):
            out |= {f"{one.name} {k}": x.clone() for k, x in enumerate(value)}
        elif isinstance(value, Tensor):
            out[one.name] = value.clone()
    return out


def assert_same_bits(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# ------------------------------------------------------------------ by hand


class Two(Scripted):
    ends = ("..X", "./")


def test_a_batch_written_by_hand() -> None:
    """Slot 0: two steps, then termination at each third. Slot 1: truncated at each second. Horizon 4, then 4 more."""
    arena = Games(Two, 2, episodes())
    actor = actor_of(Simple(arena.spec), arena, 4)
    cost, ended = actor.collect(0)
    b = actor.batch
    assert b.inputs[0][:, 0].tolist() == [[0, 0, 0], [0, 1, 1], [0, 2, 2], [0, 3, 0], [0, 4, 1]]
    assert b.inputs[0][:, 1].tolist() == [[1, 0, 0], [1, 1, 1], [1, 2, 0], [1, 3, 1], [1, 4, 0]]
    assert b.start.int().tolist() == [[1, 1], [0, 0], [0, 1], [1, 0], [0, 1]]
    assert b.done.int().tolist() == [[0, 0], [0, 1], [1, 0], [0, 1]]
    assert b.reward[:, 0].tolist() == [[1, 0], [2, 0], [3, 0], [4, 0]]
    assert b.reward[:, 1].tolist() == [[1, -1], [2, -1], [3, -1], [4, -1]]
    assert b.value[:, 0].tolist() == [[0, 0], [2, 11], [4, 22], [3, 30], [5, 41]]
    assert b.value[:, 1].tolist() == [[1, 0], [3, 11], [3, 20], [5, 31], [5, 40]]
    # V of the state where slot 1 was cut: (1, 2, 2) and (1, 4, 2); a termination has none
    assert b.final_value[:, 1].tolist() == [[0, 0], [5, 22], [0, 0], [7, 42]]
    assert (b.final_value[:, 0] == 0).all()
    assert b.next_value[:, 0].tolist() == [[2, 11], [4, 22], [0, 0], [5, 41]]
    assert b.next_value[:, 1].tolist() == [[3, 11], [5, 22], [5, 31], [7, 42]]
    assert cost == 4 * 1 + 4 * 2
    assert [(e.ret, e.length, e.rewards, e.results) for e in ended] == [
        (3 - 2, 2, (3, -2), {"score": 1002}), (6, 3, (6, 0), {"score": 3}), (7 - 2, 2, (7, -2), {"score": 1004}),
    ]  # fmt: skip

    _, ended = actor.collect(1)
    assert b.inputs[0][:, 0].tolist() == [[0, 4, 1], [0, 5, 2], [0, 6, 0], [0, 7, 1], [0, 8, 2]]
    assert b.start.int().tolist() == [[0, 1], [0, 0], [1, 1], [0, 0], [0, 1]]
    across = next(e for e in ended if e.results["score"] < 1000)  # begun in the batch before
    assert (across.ret, across.length) == (4 + 5 + 6, 3)


def test_noise_is_keyed_by_run_member_iteration_decision_and_slot() -> None:
    arena = Games(Scripted, 5, episodes())
    actor = actor_of(Simple(arena.spec), arena, 6, seed=11, member=2)
    for iteration in (0, 7):
        actor.collect(iteration)
        noise = torch.from_numpy(draw_noise(arena.spec.action, generator(11, "act", 2, iteration), (6, 5)))
        assert torch.equal(actor.batch.action, noise.argmax(-1, keepdim=True))
        assert torch.equal(actor.batch.log_prob, -noise.abs().sum(-1))


# ------------------------------------------------------------------ one slot at a time


def played_alone(slot: int, slots: int, horizon: int, batches: int, remembers: bool) -> list[dict[str, Tensor]]:
    """The columns of one slot, from its game and the simple learner by explicit steps."""
    learner, game = Simple(Scripted.spec, remembers), Scripted()
    game.begin(slot, 0)
    carry, start = learner.carry(1), True
    out = []

    def act(state: State, begins: bool, noise: Array) -> Decision:
        memory = None if carry is None else torch.tensor([begins])
        return learner.act(
            (torch.from_numpy(state.inputs[0])[None],), None, torch.from_numpy(noise)[None], carry, memory
        )

    for iteration in range(batches):
        noise = draw_noise(game.spec.action, generator(3, "act", 0, iteration), (horizon, slots))
        x, starts, values, finals, rewards, dones = [], [], [], [], [], []
        before = None if carry is None else carry.clone()
        for t in range(horizon):
            state = game.state()
            decision = act(state, start, noise[t, slot])
            carry = decision.carry
            step = game.step(decision.action[0].numpy())
            x, starts, values = [*x, state.inputs[0]], [*starts, start], [*values, decision.value[0]]
            zero = torch.zeros(2)
            finals.append(act(game.state(), False, noise[t, slot]).value[0] if step.truncated else zero)
            rewards.append(step.reward)
            dones.append(step.over)
            start = step.over
            if start:
                game.begin(slot, 0)
        x, starts = [*x, game.state().inputs[0]], [*starts, start]
        values.append(act(game.state(), start, noise[0, slot]).value[0])
        out.append({
            "inputs 0": torch.tensor(np.array(x)), "start": torch.tensor(starts), "value": torch.stack(values),
            "final_value": torch.stack(finals), "reward": torch.tensor(np.array(rewards)), "done": torch.tensor(dones),
        })  # fmt: skip
        if before is not None:
            out[-1]["carry"] = before
    return out


@pytest.mark.parametrize("order", [None, 1, 2])
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("horizon", [1, 5, 16])
def test_batches_equal_slots_played_alone(horizon: int, remembers: bool, order: int | None) -> None:
    slots = 6
    arena = Games(Scripted, slots, episodes(), order)
    actor = actor_of(Simple(arena.spec, remembers), arena, horizon)
    alone = [played_alone(slot, slots, horizon, 3, remembers) for slot in range(slots)]
    for iteration in range(3):
        cost, _ = actor.collect(iteration)
        assert cost == horizon * sum(range(1, slots + 1))
        got = snapshot(actor.batch)
        for slot in range(slots):
            for name, want in alone[slot][iteration].items():
                mine = got[name][:, slot : slot + 1] if name == "carry" else got[name][:, slot]
                assert torch.equal(mine, want), (name, slot, iteration)


# ------------------------------------------------------------------ any order, the same bits


@pytest.mark.slow_cases(but=("Pushing-0",))
@pytest.mark.parametrize("lstm", [0, 8])
@pytest.mark.parametrize("game", [Wandering, Pushing])
def test_any_order_of_arrivals_gives_the_same_batches(game: type[Game], lstm: int) -> None:
    def batches(order: int | None) -> list[dict[str, Any]]:
        learner = PPO(net=Net(lstm=lstm, hidden=(16,)), normalize_inputs=True).learner(
            game.spec, 0, torch.device("cpu")
        )
        actor = actor_of(learner, Games(game, 7, episodes(), order), 12)
        out = []
        for iteration in range(4):
            cost, ended = actor.collect(iteration)
            outcomes = torch.tensor([(e.ret, e.length, e.results["score"]) for e in ended], dtype=torch.float64)
            out.append(snapshot(actor.batch) | {"cost": torch.tensor(cost), "ended": outcomes})
            learner.update(actor.batch, 0, iteration)
        return out

    lockstep = batches(None)
    assert sum(int(b["done"].sum()) for b in lockstep) > 20
    for order in range(3):
        for got, want in zip(batches(order), lockstep, strict=True):
            assert_same_bits(got, want)


def test_the_batches_of_members_lie_side_by_side() -> None:
    learner = PPO(net=Net(lstm=4)).learner(Wandering.spec, 0, torch.device("cpu"))
    parts = []
    for member in range(2):
        actor = actor_of(learner, Games(Wandering, 3, episodes(member)), 5, member=member)
        actor.collect(0)
        parts.append(actor.batch)
    storage = PolicyGradientBatch.empty(Wandering.spec, 5, 6, 4)
    whole = storage.fill(parts)
    assert whole is storage and storage.fill(parts[:1]) is parts[0]
    for name, got in snapshot(whole).items():
        first, second = (snapshot(part)[name] for part in parts)
        assert torch.equal(got[:, :3], first) and torch.equal(got[:, 3:], second), name


# ------------------------------------------------------------------ resume


@pytest.mark.slow_cases("8-None", "0-5")
@pytest.mark.parametrize("order", [None, 5])
@pytest.mark.parametrize("lstm", [0, 8])
def test_a_restored_actor_goes_on_exactly(lstm: int, order: int | None) -> None:
    learner = PPO(net=Net(lstm=lstm)).learner(Wandering.spec, 0, torch.device("cpu"))
    actor = actor_of(learner, Games(Wandering, 5, episodes(), order), 7)
    for iteration in range(2):
        actor.collect(iteration)
    state = actor.state_dict()
    want, outcome = [], []
    for iteration in (2, 3):
        outcome.append(actor.collect(iteration))
        want.append(snapshot(actor.batch))
    for _ in range(2):  # twice from the same state: nothing wrote into it
        other = actor_of(learner, Games(Wandering, 5, episodes(), None if order is None else 99), 7)
        other.load_state_dict(state)
        for iteration in (2, 3):
            cost, ended = other.collect(iteration)
            assert_same_bits(snapshot(other.batch), want[iteration - 2])
            assert cost == outcome[iteration - 2][0]
            assert ended == outcome[iteration - 2][1]


# ------------------------------------------------------------------ not finite


class Poisoned(Game):
    """Slot 2 gives a bad number at its third decision, where ``where`` says."""

    spec = Spec((Input("fine", (2,)), Input("ill", (2,))), Discrete(2))
    where = "input"
    bad: Any = (1.0, float("nan"))

    def state(self) -> State:
        ill = np.zeros(2, np.float32)
        now = {"input": self.t == 3, "first": self.t == 0, "final": self.t == 5}.get(self.where, False)
        if self.slot == 2 and now:
            ill[:] = self.bad
        return State((np.ones(2, np.float32), ill))

    def step(self, action: Array) -> Step:
        self.t += 1
        reward = self.bad[1] if self.where == "reward" and self.t == 3 and self.slot == 2 else 1.0
        return Step(np.array([reward], np.float32), truncated=self.t == 5)


@pytest.mark.parametrize("order", [None, 4])
@pytest.mark.parametrize("bad", [(1.0, float("nan")), (float("inf"), float("-inf")), (0.0, float("inf"))])
@pytest.mark.parametrize("where", ["input", "first", "final", "reward"])
def test_a_number_that_is_not_finite_stops_with_its_name(
    where: str, bad: tuple[float, float], order: int | None
) -> None:
    game = type("Poison", (Poisoned,), {"where": where, "bad": bad})
    learner = PPO().learner(game.spec, 0, torch.device("cpu"))
    named = "the reward of slot 2" if where == "reward" else "input 'ill' of slot 2"
    with pytest.raises(NotFinite, match=named):
        actor_of(learner, Games(game, 4, episodes(), order), 20).collect(0)


def test_numbers_whose_squares_overflow_are_fine() -> None:
    game = type("Large", (Poisoned,), {"where": "input", "bad": (3e38, -3e38)})
    actor = actor_of(PPO().learner(game.spec, 0, torch.device("cpu")), Games(game, 4, episodes()), 20)
    actor.collect(0)
    assert actor.batch.inputs[1].max() == torch.tensor(3e38)


# ------------------------------------------------------------------ what a world may not say


class Stuck(Wandering):
    """From the third decision of an episode slot 1 has no choice in the second head."""

    def state(self) -> State:
        now = super().state()
        assert now.legal is not None
        return now._replace(legal=now.legal & (np.arange(5) < 3)) if self.slot == 1 and self.t > 1 else now


class Telling(Scripted):
    """``told`` in the second of slot 1's episodes."""

    told: dict[str, float]
    episode = -1

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.episode += 1

    def result(self) -> dict[str, float]:
        return self.told if self.slot == 1 and self.episode == 1 else {"fitness": 1.0}


@pytest.mark.parametrize(
    "name", ["left wins", "hits/shot", "", "episode_length", "episodes", "return_a", "stochastic_return"]
)
def test_names_that_no_metric_can_have(name: str) -> None:
    """Of results when they are first told, of rewards as soon as there is a spec."""
    game = type("Told", (Scripted,), {"result": lambda self: {"fitness": 1.0, name: 1.0}})
    with pytest.raises(WorldError, match=f"^{name!r} (is|cannot)"):
        actor_of(Simple(game.spec), Games(game, 3, episodes()), 60).collect(0)
    with pytest.raises(WorldError, match=f"^{name!r} (is|cannot)"):
        Spec((), Discrete(2), ("damage", name))


@pytest.mark.parametrize("order", [None, 4])
def test_a_mask_without_a_choice_is_named(order: int | None) -> None:
    learner = PPO().learner(Stuck.spec, 0, torch.device("cpu"))
    with pytest.raises(WorldError, match=r"legal mask of slot 1 leaves no choice in head 1"):
        actor_of(learner, Games(Stuck, 3, episodes(), order), 20).collect(0)


@pytest.mark.parametrize(
    ("told", "kind", "named"),
    [
        ({"fitness": float("nan")}, NotFinite, "slot 1 reports the result 'fitness', which is not finite: nan"),
        ({"fitness": 1.0, "won": 1.0}, WorldError, "slot 1 reports the result 'won', unlike the episodes before"),
        ({}, WorldError, "slot 1 lacks the result 'fitness', unlike the episodes before"),
        (
            {"fitness": 1.0, "win": -1.0},
            WorldError,
            "slot 1 reports the result 'win' as -1: it is 1 for a win, 0.5 for",
        ),
    ],
    ids=["nan", "more", "fewer", "below"],
)
def test_results_that_cannot_be_used_are_named(told: dict[str, float], kind: type[Exception], named: str) -> None:
    several = replace(Telling.spec, players=2) if "win" in told else Telling.spec
    game = type("Told", (Telling,), {"told": told, "spec": several})
    with pytest.raises(kind, match=named):
        actor_of(Simple(game.spec), Games(game, 3, episodes()), 60).collect(0)
