"""Action distributions against torch.distributions, masks, sampling and bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, Independent, Normal

from evorl.mdp.core import Action, Box, Discrete, MultiDiscrete, heads
from evorl.nets.distributions import (
    draw_noise,
    implied,
    kl,
    log_prob_entropy,
    noise_size,
    outputs,
    parameter_count,
    parameters,
    sample,
    to_world,
)
from evorl.util.seed import generator

torch.set_num_threads(1)

BOX = Box((-1.0, -2.0), (1.0, 4.0))
CATEGORICAL = [Discrete(5), Discrete(1), MultiDiscrete((3, 4)), MultiDiscrete((2, 1, 6))]


def normals(*words: int | str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(generator("test", *words).standard_normal(shape)).to(dtype)


def random_mask(action: Action, rows: int, seed: int) -> torch.Tensor:
    """Random legal entries, at least one of each head."""
    rng = generator("mask", seed)
    parts = []
    for n in heads(action):
        legal = rng.random((rows, n)) < 0.5
        legal[np.arange(rows), rng.integers(n, size=rows)] = True
        parts.append(legal)
    return torch.from_numpy(np.concatenate(parts, -1))


def categorical_oracle(action: Action, raw: torch.Tensor, legal: torch.Tensor | None) -> list[Categorical]:
    """Each head's distribution: probability 0 where illegal, renormalised."""
    probabilities = []
    for part, allowed in zip(
        raw.double().split(heads(action), -1),
        (torch.ones_like(raw, dtype=torch.bool) if legal is None else legal).split(heads(action), -1),
        strict=True,
    ):
        weight = (part - part.amax(-1, keepdim=True)).exp() * allowed
        probabilities.append(Categorical(probs=weight / weight.sum(-1, keepdim=True)))
    return probabilities


@pytest.mark.parametrize("action", CATEGORICAL, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_categorical_log_prob_and_entropy(action: Action, masked: bool) -> None:
    raw = normals("logits", str(action), shape=(50, outputs(action, False)))
    legal = random_mask(action, 50, 1) if masked else None
    oracle = categorical_oracle(action, raw, legal)
    chosen = torch.stack([one.sample() for one in oracle], -1)
    log_prob, entropy = log_prob_entropy(action, raw, None, legal, chosen)
    wanted = sum(one.log_prob(chosen[:, k]) for k, one in enumerate(oracle))
    torch.testing.assert_close(log_prob.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy.double(), sum(one.entropy() for one in oracle), rtol=1e-5, atol=1e-5)
    assert log_prob.shape == entropy.shape == (50,)


@pytest.mark.parametrize("state_std", [False, True])
def test_gaussian_log_prob_and_entropy(state_std: bool) -> None:
    raw = normals("box", shape=(50, outputs(BOX, state_std)))
    log_std = None if state_std else torch.tensor([0.3, -1.2])
    chosen = normals("chosen", shape=(50, 2)) * 2
    sigma = raw[:, 2:].exp() if log_std is None else log_std.exp().expand(50, 2)
    oracle = Independent(Normal(raw[:, :2].double(), sigma.double()), 1)
    log_prob, entropy = log_prob_entropy(BOX, raw, log_std, None, chosen)
    torch.testing.assert_close(log_prob.double(), oracle.log_prob(chosen.double()), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(entropy.double(), oracle.entropy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("action", [Discrete(5), MultiDiscrete((3, 4)), BOX], ids=str)
def test_recurrent_rows_are_rows(action: Action) -> None:
    """[T, B, ...] gives what [T * B, ...] gives."""
    raw = normals("tb", shape=(4, 3, outputs(action, True)))
    noise = torch.from_numpy(draw_noise(action, generator("tb noise"), (4, 3)))
    chosen = sample(action, raw, None, None, noise)
    flat = sample(action, raw.flatten(0, 1), None, None, noise.flatten(0, 1))
    assert torch.equal(chosen.flatten(0, 1), flat)
    for both, rows in zip(
        log_prob_entropy(action, raw, None, None, chosen),
        log_prob_entropy(action, raw.flatten(0, 1), None, None, flat),
        strict=True,
    ):
        torch.testing.assert_close(both.flatten(), rows)


@pytest.mark.parametrize("masked", [False, True])
def test_sampling_frequencies_match_softmax(masked: bool) -> None:
    """Pearson's chi-square of 40000 keyed draws of each head, at the 99.99 % quantile."""
    action = MultiDiscrete((4, 3))
    logits = torch.tensor([1.0, 0.0, -1.0, 0.5, 2.0, -0.5, 0.0])
    legal = torch.tensor([True, True, not masked, True, True, not masked, True])
    draws = 40_000
    noise = torch.from_numpy(draw_noise(action, generator("frequencies"), (draws,)))
    chosen = sample(action, logits.expand(draws, -1), None, legal.expand(draws, -1), noise)
    quantile = {1: 15.14, 2: 18.42, 3: 21.11}  # of chi-square by degrees of freedom
    for k, head in enumerate(categorical_oracle(action, logits[None], legal[None])):
        expected = head.probs[0] * draws
        counts = torch.bincount(chosen[:, k], minlength=len(expected)).double()
        possible = expected > 0
        assert (counts[~possible] == 0).all()
        statistic = ((counts - expected).square() / expected)[possible].sum()
        assert statistic < quantile[int(possible.sum()) - 1]


def test_gaussian_draws_have_its_moments() -> None:
    draws = 40_000
    noise = torch.from_numpy(draw_noise(BOX, generator("gauss"), (draws,)))
    chosen = sample(BOX, torch.tensor([[0.5, -1.0]]).expand(draws, -1), torch.tensor([0.0, -1.0]), None, noise)
    sigma = torch.tensor([1.0, math.exp(-1)])
    assert ((chosen.mean(0) - torch.tensor([0.5, -1.0])).abs() < 5 * sigma / math.sqrt(draws)).all()
    assert ((chosen.std(0) / sigma - 1).abs() < 5 / math.sqrt(2 * draws)).all()


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("action", [Discrete(5), MultiDiscrete((3, 4))], ids=str)
def test_illegal_never_sampled_and_nothing_is_nan(action: Action, scale: float) -> None:
    rows = 20_000
    raw = (normals("huge", shape=(rows, outputs(action, False))) * scale).requires_grad_()
    legal = random_mask(action, rows, 2)
    noise = torch.from_numpy(draw_noise(action, generator("huge noise"), (rows,)))
    chosen = sample(action, raw, None, legal, noise)
    for k, allowed in enumerate(legal.split(heads(action), -1)):
        assert allowed.gather(-1, chosen[:, k : k + 1]).all()
    log_prob, entropy = log_prob_entropy(action, raw, None, legal, chosen)
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), raw)
    for x in (log_prob, entropy, gradient):
        assert torch.isfinite(x).all()
    assert (gradient[~legal] == 0).all()


def test_the_largest_illegal_logit_is_no_temptation() -> None:
    raw = torch.tensor([[1e6, -1e6, -1e6]])
    legal = torch.tensor([[False, True, True]])
    noise = torch.from_numpy(draw_noise(Discrete(3), generator("tempt"), (1000,)))
    chosen = sample(Discrete(3), raw.expand(1000, -1), None, legal.expand(1000, -1), noise)
    assert set(chosen.flatten().tolist()) == {1, 2}
    log_prob, entropy = log_prob_entropy(Discrete(3), raw, None, legal, torch.tensor([[1]]))
    assert log_prob.item() == pytest.approx(math.log(0.5)) and entropy.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("action", [Discrete(5), MultiDiscrete((3, 4))], ids=str)
def test_zero_noise_is_the_mode(action: Action) -> None:
    raw = normals("mode", shape=(200, outputs(action, False)))
    legal = random_mask(action, 200, 3)
    chosen = sample(action, raw, None, legal, torch.zeros(200, noise_size(action)))
    for k, head in enumerate(categorical_oracle(action, raw, legal)):
        assert torch.equal(chosen[:, k], head.probs.argmax(-1))


def test_zero_noise_is_the_mean() -> None:
    raw = normals("mean", shape=(10, 4))
    assert torch.equal(sample(BOX, raw, None, None, torch.zeros(10, 2)), raw[:, :2])


def test_state_dependent_deviation_is_kept_in_range() -> None:
    raw = torch.tensor([[0.0, 0.0, -100.0, 100.0]])
    chosen = sample(BOX, raw, None, None, torch.ones(1, 2))
    torch.testing.assert_close(chosen, torch.tensor([[math.exp(-5), math.exp(2)]]))


def test_box_actions_lie_within_bounds_and_use_them() -> None:
    action = Box((-2.0, 0.0, -math.inf, -math.inf, 1.0), (2.0, 10.0, math.inf, 0.5, math.inf))
    chosen = normals("bounds", shape=(5000, 5)) * 3
    played = to_world(action, chosen)
    low, high = torch.tensor(action.low), torch.tensor(action.high)
    assert ((played >= low) & (played <= high)).all()
    assert played[:, 0].max() == 2 and played[:, 0].min() == -2 and played[:, 1].max() == 10
    assert torch.equal(played[:, 2], chosen[:, 2])  # unbounded: untouched
    assert torch.equal(played[:, 3], chosen[:, 3].clamp(max=0.5))
    centre = to_world(action, torch.zeros(1, 5))[0]
    assert centre.tolist() == [0.0, 5.0, 0.0, 0.0, 1.0]
    inside = chosen[:, 0].abs() < 1
    assert torch.equal(played[inside, 0], 2 * chosen[inside, 0])


def test_bounds_at_the_edge_of_float32_stay_finite() -> None:
    most = float(np.finfo(np.float32).max)
    assert torch.isfinite(to_world(Box((-most,), (most,)), torch.tensor([[0.0], [0.5], [-3.0]]))).all()


def test_categorical_actions_travel_as_they_are() -> None:
    chosen = torch.tensor([[1, 2]])
    assert to_world(MultiDiscrete((3, 4)), chosen) is chosen


@pytest.mark.parametrize("action", [*CATEGORICAL, BOX], ids=str)
def test_noise_shape_and_type(action: Action) -> None:
    noise = draw_noise(action, generator("shape"), (7, 3))
    assert noise.shape == (7, 3, noise_size(action)) and noise.dtype == np.float32 and np.isfinite(noise).all()


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=6), st.data())
def test_probabilities_of_all_actions_sum_to_one(logits: list[float], data: st.DataObject) -> None:
    n = len(logits)
    mask = data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any))
    raw, legal = torch.tensor([logits]).expand(n, n), torch.tensor([mask]).expand(n, n)
    log_prob, entropy = log_prob_entropy(Discrete(n), raw, None, legal, torch.arange(n)[:, None])
    assert log_prob.double().exp().sum().item() == pytest.approx(1, abs=1e-5)
    assert (log_prob.exp()[~legal[0]] == 0).all()
    assert 0 <= entropy[0].item() + 1e-6 <= math.log(sum(mask)) + 2e-6


# ------------------------------------------------------------------ whole policies


@pytest.mark.parametrize("action", CATEGORICAL, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_kl_of_categorical_policies_is_torch_s(action: Action, masked: bool) -> None:
    p, q = (normals("kl", n, shape=(7, outputs(action, False))) for n in range(2))
    legal = random_mask(action, 7, 1) if masked else None
    first, second = (parameters(action, raw, None) for raw in (p, q))
    assert first.shape == (7, parameter_count(action))
    pairs = zip(categorical_oracle(action, p, legal), categorical_oracle(action, q, legal), strict=True)
    wanted = torch.zeros(7, dtype=torch.float64)
    for one, other in pairs:
        share = torch.where(one.probs > 0, one.probs * (one.probs / other.probs).log(), 0.0)
        wanted += share.sum(-1)
    torch.testing.assert_close(kl(action, first, second, legal).double(), wanted, rtol=1e-5, atol=1e-6)
    assert kl(action, first, first, legal).abs().max() < 1e-6


@pytest.mark.parametrize("state_std", [False, True])
def test_kl_of_gaussian_policies_is_torch_s(state_std: bool) -> None:
    p, q = (normals("kl", n, shape=(7, outputs(BOX, state_std))) for n in range(2))
    log_stds = [None if state_std else normals("std", n, shape=(2,)) for n in range(2)]
    first, second = (parameters(BOX, raw, log_std) for raw, log_std in zip((p, q), log_stds, strict=True))
    assert first.shape == (7, parameter_count(BOX))
    normal = [Independent(Normal(x[:, :2].double(), x[:, 2:].double().exp()), 1) for x in (first, second)]
    wanted = torch.distributions.kl_divergence(*normal)
    torch.testing.assert_close(kl(BOX, first, second, None).double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [0.5, 1.0, 3.0])
def test_the_implied_policy_is_the_smaller_of_two_normalised(clip: float) -> None:
    action = Discrete(5)
    pi, mu, legal = normals("pi", shape=(9, 5)), normals("mu", shape=(9, 5)), random_mask(action, 9, 2)
    (p,), (m,) = categorical_oracle(action, pi, legal), categorical_oracle(action, mu, legal)
    smaller = torch.minimum(clip * m.probs, p.probs)
    got = implied(pi, mu, legal, clip).masked_fill(~legal, -1e9).softmax(-1)
    torch.testing.assert_close(got.double(), smaller / smaller.sum(-1, keepdim=True), rtol=1e-5, atol=1e-6)
