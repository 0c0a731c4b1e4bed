"""The rescaling of returns against its formulas, and its inverse."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from evorl.ops.rescaling import rescale, unscale

NUMBERS = st.floats(-1e6, 1e6)


def h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


@given(x=NUMBERS)
def test_it_is_the_published_function_and_its_inverse(x: float) -> None:
    y = torch.tensor(x, dtype=torch.float64)
    torch.testing.assert_close(rescale(y), torch.tensor(h(x), dtype=torch.float64))
    torch.testing.assert_close(unscale(rescale(y)), y, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rescale(unscale(y)), y, rtol=1e-9, atol=1e-9)
    published = ((math.sqrt(1 + 4e-3 * (abs(x) + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1
    torch.testing.assert_close(unscale(y), torch.tensor(math.copysign(published, x)).double(), rtol=1e-5, atol=1e-6)


@given(x=st.floats(-1000, 1000, width=32))
def test_single_precision_is_enough(x: float) -> None:
    y = torch.tensor(x)
    torch.testing.assert_close(unscale(rescale(y)), y, rtol=3e-6, atol=2e-6)


@given(a=NUMBERS, b=NUMBERS)
def test_it_keeps_order(a: float, b: float) -> None:
    low, high = (torch.tensor(x, dtype=torch.float64) for x in sorted((a, b)))
    assert rescale(low) <= rescale(high) and unscale(low) <= unscale(high)


def test_large_returns_become_small() -> None:
    assert rescale(torch.zeros(1)) == 0 and unscale(torch.zeros(1)) == 0
    assert rescale(torch.tensor(10_000.0)) < 110 and rescale(torch.tensor(1.0)) < 0.5
