"""Losses of action values against slow ones, written atom by atom from the definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.ops.value_distributions import cross_entropy, entropy, huber, project, quantile_huber

LOW, HIGH, ATOMS = -2.0, 3.0, 11
SUPPORT = torch.linspace(LOW, HIGH, ATOMS)


def projected(position: list[float], probability: list[float]) -> list[float]:
    """Algorithm 1 of Bellemare et al. 2017: l and u are the places below and above."""
    step, found = (HIGH - LOW) / (ATOMS - 1), [0.0] * ATOMS
    for place, share in zip(position, probability, strict=True):
        b = (min(max(place, LOW), HIGH) - LOW) / step
        lower, upper = int(np.floor(b)), int(np.ceil(b))
        if lower == upper:
            found[lower] += share
        else:
            found[lower] += share * (upper - b)
            found[upper] += share * (b - lower)
    return found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-4, 5, width=32), min_size=ATOMS, max_size=ATOMS), st.integers(0, 1000))
def test_projection_shares_each_atom_between_its_neighbours(position: list[float], seed: int) -> None:
    probability = np.random.default_rng(seed).dirichlet(np.ones(ATOMS))
    found = project(torch.tensor(position), torch.tensor(probability, dtype=torch.float32), SUPPORT)
    np.testing.assert_allclose(found, projected(position, probability.tolist()), atol=2e-5)
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)


def test_projection_keeps_what_lies_on_the_support() -> None:
    probability = torch.rand(2, 3, ATOMS).softmax(-1)
    torch.testing.assert_close(project(SUPPORT.expand(2, 3, -1), probability, SUPPORT), probability)
    shifted = project((SUPPORT + 0.25).expand(2, 3, -1), probability, SUPPORT)  # half a step, inside the ends
    inside = probability[..., :-1]
    mean = (inside * (SUPPORT[:-1] + 0.25)).sum(-1) + probability[..., -1] * HIGH
    torch.testing.assert_close((shifted * SUPPORT).sum(-1), mean)


@pytest.mark.parametrize("delta", [0.5, 1.0, 1e9])
def test_huber(delta: float) -> None:
    error = torch.linspace(-3, 3, 25)
    for x, found in zip(error.tolist(), huber(error, delta).tolist(), strict=True):
        assert found == pytest.approx(x * x / 2 if abs(x) <= delta else delta * (abs(x) - delta / 2), abs=1e-6)
    leaf = error.clone().requires_grad_()
    (slope,) = torch.autograd.grad(huber(leaf, delta).sum(), leaf)
    torch.testing.assert_close(slope, error.clamp(-delta, delta))


def test_cross_entropy_is_least_at_the_target() -> None:
    target = torch.rand(4, ATOMS).softmax(-1)
    at = cross_entropy(target.log(), target)
    torch.testing.assert_close(at, torch.distributions.Categorical(target).entropy())
    assert (cross_entropy(torch.randn(4, ATOMS), target) > at).all()
    torch.testing.assert_close(entropy(target), at)


def test_certainty_has_no_entropy() -> None:
    probability = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    assert entropy(probability).tolist() == pytest.approx([0, np.log(2)])


@pytest.mark.parametrize("kappa", [0.3, 1.0])
def test_quantile_huber(kappa: float) -> None:
    """Eq. 10 and algorithm 1 of Dabney et al. 2018, pair by pair."""
    quantiles, target = torch.randn(2, 5), torch.randn(2, 5)
    for row, found in enumerate(quantile_huber(quantiles, target, kappa).tolist()):
        total = 0.0
        for i in range(5):
            for j in range(5):
                u = float(target[row, j] - quantiles[row, i])
                loss = u * u / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
                total += abs((2 * i + 1) / 10 - (u < 0)) * loss / 5
        assert found == pytest.approx(total, rel=1e-5)


def test_quantiles_that_learn_find_those_of_their_samples() -> None:
    """A small kappa is quantile regression: the minimum lies at the quantiles of the samples."""
    samples = torch.arange(100.0)[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    quantiles = torch.full((4,), 40.0, requires_grad=True)
    adam = torch.optim.Adam([quantiles], lr=0.5)
    for _ in range(600):
        error = quantile_huber(quantiles.expand(25, 4), samples.view(25, 4), 0.01).mean()
        adam.zero_grad()
        error.backward()
        adam.step()
    np.testing.assert_allclose(quantiles.detach(), [12.5, 37.5, 62.5, 87.5], atol=3)
