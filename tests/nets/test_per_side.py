"""Networks of each side of a game: whose rows each computes, what it learns from, and actions that a side lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from evorl.mdp.core import Action, Box, Discrete, Input, MultiDiscrete, SideSpec, Spec, WorldError
from evorl.nets.distributions import draw_noise, log_prob_entropy, sample
from evorl.nets.per_side import MomentsPerSide, PolicyPerSide, parts, widened
from evorl.nets.policy import Net, Policy
from evorl.nets.statistics import CLIP, FLOOR
from evorl.util.errors import BadRequest
from evorl.util.seed import generator

ROW, MAP, WHO = Input("row", (5,)), Input("map", (2, 3)), Input("who", (3,))
SPEC = Spec(
    (ROW, MAP, WHO), MultiDiscrete((4, 3)), ("a", "b"), players=3, who="who",
    each=(
        SideSpec((ROW, None, WHO), Discrete(4)),
        SideSpec((Input("row", (2,)), MAP, WHO), MultiDiscrete((2, 3))),
        SideSpec((Input("row", (2,)), MAP, WHO), MultiDiscrete((2, 3))),
    ),
)  # fmt: skip
NET = Net(hidden=(8,))


def rows(*sides: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Observations of these sides, [N, ...]."""
    draw = torch.Generator().manual_seed(seed)
    row, seen = torch.randn(len(sides), 5, generator=draw), torch.randn(len(sides), 2, 3, generator=draw)
    for number, side in enumerate(sides):
        row[number, 2 if side else 5 :], seen[number] = 0, seen[number] * bool(side)
    return row, seen, torch.eye(3)[list(sides)]


def policy(net: Net = NET, policies: Any = "each", spec: Spec = SPEC) -> PolicyPerSide:
    made = PolicyPerSide(spec, net, policies)
    made.initialise(torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize("policies", ["each", ((2, 1), (0,)), ((0, 1, 2),)])
def test_a_row_has_the_numbers_of_its_own_network(policies: Any) -> None:
    made, sides = policy(policies=policies), [0, 2, 1, 1, 0]
    out, seen = made(rows(*sides)), rows(*sides)
    for number, side in enumerate(sides):
        which = next(k for k, part in enumerate(made.parts) if side in part.sides)
        part, own = made.parts[which], tuple(x[number : number + 1] for x in seen)
        alone = made.policies[which](part.of(own))
        raw = widened(SPEC.action, part.action, alone.raw, None)
        torch.testing.assert_close(out.raw[number], raw[0])
        torch.testing.assert_close(out.value[number], alone.value[0])


def test_networks_see_and_decide_what_is_theirs() -> None:
    networks: Any = policy().policies
    first, second, _ = networks
    assert first.hidden[0].weight.shape[1] == 5 + 3 and second.hidden[0].weight.shape[1] == 2 + 6 + 3
    assert first.policy.out_features == 4 and second.policy.out_features == 5
    (both,) = policy(policies=((0, 1, 2),)).policies
    assert isinstance(both, Policy)
    assert both.hidden[0].weight.shape[1] == 5 + 6 + 3 and both.policy.out_features == 7


def test_a_network_learns_from_its_own_rows_alone() -> None:
    made = policy()
    out = made(rows(0, 2, 2))
    (out.raw.clamp(min=-9).square().sum() + out.value.square().sum()).backward()
    moved = [any(p.grad is not None and p.grad.any() for p in each.parameters()) for each in made.policies]
    assert moved == [True, False, True]


def test_a_memory_is_that_of_its_own_side() -> None:
    """A slot that has another side in its next episode begins with no memory."""
    made = policy(Net(hidden=(8,), lstm=4))
    sides = [[0, 1], [0, 1], [2, 1], [2, 0]]  # [T, B]
    start = torch.tensor([[False, False], [False, False], [True, False], [False, True]])
    seen = tuple(torch.stack(x) for x in zip(*(rows(*now, seed=t) for t, now in enumerate(sides)), strict=True))
    before = torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(3))
    out = made(seen, before, start)
    for slot, spans in enumerate([[(0, 2, 0), (2, 4, 2)], [(0, 3, 1), (3, 4, 0)]]):
        for first, end, side in spans:
            own = tuple(x[first:end, slot : slot + 1] for x in seen)
            carry = before[:, slot : slot + 1] if first == 0 else torch.zeros(2, 1, 4)
            alone = made.policies[side](made.parts[side].of(own), carry, torch.zeros(end - first, 1, dtype=torch.bool))
            torch.testing.assert_close(out.value[first:end, slot], alone.value[:, 0])
            if end == 4:
                torch.testing.assert_close(out.carry[:, slot], alone.carry[:, 0])


CHOICES: list[tuple[Action, Action]] = [
    (MultiDiscrete((4, 3)), Discrete(2)), (MultiDiscrete((4, 3, 2)), MultiDiscrete((2, 3))), (Discrete(5), Discrete(3)),
    (Box((-1.0,) * 3, (1.0,) * 3), Box((-1.0,) * 2, (1.0,) * 2)),
]  # fmt: skip


@pytest.mark.parametrize(("action", "own"), CHOICES)
def test_what_a_side_lacks_changes_neither_probability_nor_entropy(action: Action, own: Action) -> None:
    draw = torch.Generator().manual_seed(0)
    size = len(own.low) if isinstance(own, Box) else sum(own.nvec if isinstance(own, MultiDiscrete) else (own.n,))
    raw = torch.randn(50, size, generator=draw)
    log_std = torch.tensor([-0.3, 0.4]) if isinstance(own, Box) else None
    noise = torch.from_numpy(draw_noise(action, generator("noise"), (50,)))
    wide = widened(action, own, raw, log_std)
    chosen = sample(action, wide, None, None, noise)
    count = len(own.low) if isinstance(own, Box) else len(own.nvec) if isinstance(own, MultiDiscrete) else 1
    log_prob, entropy = log_prob_entropy(action, wide, None, None, chosen)
    alone, own_entropy = log_prob_entropy(own, raw, log_std, None, chosen[:, :count])
    torch.testing.assert_close(entropy, own_entropy)
    if isinstance(own, Box):
        torch.testing.assert_close(log_prob - log_prob[0], alone - alone[0] + lacking(chosen, log_prob, alone))
    else:
        torch.testing.assert_close(log_prob, alone)
        limits = own.nvec if isinstance(own, MultiDiscrete) else (own.n,)
        assert (chosen[:, :count] < torch.tensor(limits)).all() and not chosen[:, count:].any()


def lacking(chosen: Tensor, log_prob: Tensor, alone: Tensor) -> Tensor:
    """What the component that a side lacks adds, which no weight changes."""
    more = log_prob - alone
    other = chosen[:, 2].abs()
    assert (more[other.argsort()].diff() <= 1e-5).all()  # of a Gaussian around 0
    return more - more[0]


def test_inputs_are_normalised_by_the_statistics_of_their_side() -> None:
    made, seen = parts(SPEC, "each"), [rows(0, 1, 2, 1, 0, seed=seed) for seed in range(6)]
    moments = MomentsPerSide(SPEC, made)
    for each in seen[:5]:
        moments.update(each)
    row, place, who = moments.normalize(moments.tensors(torch.device("cpu")), seen[5])
    assert torch.equal(who, seen[5][2])
    known = {
        side: [torch.stack([x[i][k] for x in seen[:5] for k in at]) for i in (0, 1)] for side, at in PLACES.items()
    }
    for side, at in PLACES.items():
        for number in at:
            for found, i, size in ((row, 0, 2 if side else 5), (place, 1, 3 if side else 0)):
                own = known[side][i]
                slow = ((seen[5][i][number] - own.mean(0)) / own.std(0, correction=0).clamp(min=FLOOR)).clamp(
                    -CLIP, CLIP
                )
                torch.testing.assert_close(found[number][..., :size], slow[..., :size], rtol=1e-4, atol=1e-4)
                assert not found[number][..., size:].any()
    other = MomentsPerSide(SPEC, made)
    other.load_state_dict(moments.state_dict())
    assert all(map(torch.equal, other.tensors(torch.device("cpu")), moments.tensors(torch.device("cpu"))))


PLACES = {0: [0, 4], 1: [1, 3], 2: [2]}


@pytest.mark.parametrize(
    ("spec", "policies", "text"),
    [
        (Spec((ROW,), Discrete(2)), "each", "the games of this world have one side"),
        (Spec((ROW,), Discrete(2), players=2), "each", "observations do not tell which side it is"),
        (SPEC, ((0, 1),), r"expected groups of the sides 0 to 2, each once, got \[\[0, 1\]\]"),
        (SPEC, ((0, 1), (1, 2)), "each once"),
        (SPEC, ((0, 1, 2), ()), "each once"),
        (SPEC, ((0, 1, 2, 3),), "each once"),
    ],
)
def test_what_is_refused(spec: Spec, policies: Any, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        parts(spec, policies)


@pytest.mark.parametrize(
    "changes", [{"who": "row", "players": 6}, {"who": "map"}, {"who": ""}, {"each": SPEC.each[:2]}]
)
def test_a_spec_that_contradicts_itself(changes: dict[str, Any]) -> None:
    with pytest.raises(WorldError, match=r"must name a float32 row|must have a SideSpec"):
        replace(SPEC, **changes)


def test_the_whole_is_a_function_of_its_named_parameters() -> None:
    made = policy()
    named = dict(made.named_parameters())
    assert len(named) == 3 * len(dict(made.policies[0].named_parameters()))
    out = functional_call(made, {name: 2 * x for name, x in named.items()}, (rows(0, 1),))
    assert np.isfinite(out.value.detach().numpy()).all() and not torch.equal(out.value, made(rows(0, 1)).value)
