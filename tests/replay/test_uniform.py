"""Uniform sampling: a pure function of its key and the gradient step, and uniform."""

from __future__ import annotations

import numpy as np

from evorl.replay.samplers.uniform import uniform


def test_a_minibatch_does_not_depend_on_how_many_are_drawn_at_once() -> None:
    whole = uniform(7, 0, 12, 16, 100, 1100)
    parts = [uniform(7, 0, 5, 16, 100, 1100), uniform(7, 5, 1, 16, 100, 1100), uniform(7, 6, 6, 16, 100, 1100)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert (whole != uniform(8, 0, 12, 16, 100, 1100)).any()


def test_it_is_uniform_within_its_bounds() -> None:
    drawn = uniform(3, 40, 1000, 100, 5, 25)
    counts = np.bincount(drawn.reshape(-1), minlength=25)
    assert drawn.min() == 5 and drawn.max() == 24 and counts[:5].sum() == 0
    expected = drawn.size / 20
    assert ((counts[5:] - expected) ** 2 / expected).sum() < 43.8  # chi-squared with 19 degrees of freedom, p = 0.001
