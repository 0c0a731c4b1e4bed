"""Losses against their definitions, sample by sample, and against each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evorl.nets.capture import capture
from evorl.ops.losses import (
    approximate_kl,
    explained_variance,
    normalize,
    normalize_within,
    policy_gradient,
    ppo_clip,
    value_loss,
)

torch.set_num_threads(1)

shapes = settings(max_examples=60)  # the machine may be busy
clips = st.floats(0.05, 0.9)


@dataclass(frozen=True)
class Samples:
    """Two policies' log-probabilities of the same actions, and their advantages, all [N] or [T, N]."""

    logp: Tensor
    old_logp: Tensor
    advantage: Tensor

    def rows(self) -> list[tuple[float, float]]:
        """Ratio and advantage of each sample."""
        log_ratio = (self.logp - self.old_logp).flatten().tolist()
        return list(zip(map(math.exp, log_ratio), self.advantage.flatten().tolist(), strict=True))


def samples(seed: int, shape: tuple[int, ...], distance: float = 0.3) -> Samples:
    noise = torch.Generator().manual_seed(seed)
    old, move, advantage = torch.randn(3, *shape, generator=noise, dtype=torch.float64)
    return Samples(old + distance * move, old, advantage)


seeds = st.integers(0, 2**32)
shape = st.tuples(st.integers(1, 40)) | st.tuples(st.integers(1, 6), st.integers(1, 6))
many_samples = st.builds(samples, seeds, shape, st.sampled_from([0.0, 0.1, 0.3, 2.0]))


def close(actual: Tensor, expected: Tensor | float) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def gradient(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.clone().requires_grad_()
    return torch.autograd.grad(loss(at), at)[0]


def clipped_away(ratio: float, advantage: float, clip: float) -> bool:
    """Whether the ratio has already gone, beyond the clip, where the advantage pushes it."""
    return (advantage > 0 and ratio > 1 + clip) or (advantage < 0 and ratio < 1 - clip)


# ------------------------------------------------------------------ PPO


@shapes
@given(many_samples, clips)
def test_ppo_clip_is_its_definition(s: Samples, clip: float) -> None:
    loss, clipped = ppo_clip(s.logp, s.old_logp, s.advantage, clip)
    terms = [min(r * a, min(max(r, 1 - clip), 1 + clip) * a) for r, a in s.rows()]
    close(loss, -sum(terms) / len(terms))
    close(clipped, sum(clipped_away(r, a, clip) for r, a in s.rows()) / len(terms))


@shapes
@given(many_samples, clips)
def test_ppo_gradient_is_the_ratio_gradient_where_not_clipped_and_else_zero(s: Samples, clip: float) -> None:
    found = gradient(lambda logp: ppo_clip(logp, s.old_logp, s.advantage, clip)[0], s.logp)
    rows = s.rows()
    expected = [0.0 if clipped_away(r, a, clip) else -r * a / len(rows) for r, a in rows]
    close(found.flatten(), torch.tensor(expected, dtype=torch.float64))


@shapes
@given(many_samples, clips)
def test_ppo_gradient_at_ratio_one_is_the_policy_gradient(s: Samples, clip: float) -> None:
    ppo = gradient(lambda logp: ppo_clip(logp, s.logp, s.advantage, clip)[0], s.logp)
    close(ppo, gradient(lambda logp: policy_gradient(logp, s.advantage), s.logp))


@pytest.mark.parametrize(("ratio", "advantage"), [(1.5, 2.0), (0.5, -2.0)])
def test_a_clipped_sample_contributes_no_gradient(ratio: float, advantage: float) -> None:
    logp = torch.tensor([math.log(ratio), 0.1])
    found = gradient(lambda x: ppo_clip(x, torch.zeros(2), torch.tensor([advantage, 1.0]), 0.2)[0], logp)
    assert found[0] == 0
    assert found[1] < 0


def test_a_step_down_the_loss_makes_good_actions_likelier() -> None:
    advantage = torch.tensor([1.0, -1.0])
    for loss in (lambda x: policy_gradient(x, advantage), lambda x: ppo_clip(x, torch.zeros(2), advantage, 0.2)[0]):
        change = -gradient(loss, torch.zeros(2))
        assert change[0] > 0 > change[1]


@shapes
@given(many_samples)
def test_policy_gradient_is_its_definition(s: Samples) -> None:
    pairs = zip(s.logp.flatten().tolist(), s.advantage.flatten().tolist(), strict=True)
    close(policy_gradient(s.logp, s.advantage), -sum(x * a for x, a in pairs) / s.logp.numel())


# ------------------------------------------------------------------ critics


@shapes
@given(many_samples, st.none() | clips)
def test_value_loss_is_its_definition(s: Samples, clip: float | None) -> None:
    value, old, target = s.logp, s.old_logp, s.advantage

    def error(v: float, o: float, t: float) -> float:
        if clip is None:
            return (v - t) ** 2
        return max((v - t) ** 2, (min(max(v, o - clip), o + clip) - t) ** 2)

    rows = zip(*(x.flatten().tolist() for x in (value, old, target)), strict=True)
    close(value_loss(value, target, old, clip), sum(error(*row) for row in rows) / value.numel())


def test_a_clipped_value_far_from_the_old_one_is_not_pulled_further() -> None:
    old, target = torch.zeros(2), torch.tensor([3.0, 3.0])
    found = gradient(lambda v: value_loss(v, target, old, 0.2), torch.tensor([1.0, 0.1]))
    assert found[0] == 0  # has moved beyond the clip, towards its target
    assert found[1] < 0


def test_a_clip_without_old_values_is_refused() -> None:
    with pytest.raises(ValueError, match="needs old_value"):
        value_loss(torch.zeros(3), torch.zeros(3), clip=0.2)


@shapes
@given(many_samples)
def test_explained_variance_is_its_definition(s: Samples) -> None:
    def variance(xs: list[float]) -> float:
        return sum((x - sum(xs) / len(xs)) ** 2 for x in xs) / len(xs)

    value, target = s.logp.flatten().tolist(), s.advantage.flatten().tolist()
    residual = [t - v for v, t in zip(value, target, strict=True)]
    total = variance(target)
    close(explained_variance(s.logp, s.advantage), 1 - variance(residual) / total if total else 0.0)


def test_explained_variance_of_perfect_constant_and_hopeless_cases() -> None:
    target = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(target, target) == 1
    assert explained_variance(torch.full((3,), 7.0), target) == 0
    assert explained_variance(target, torch.full((3,), 7.0)) == 0


@pytest.mark.parametrize("same", [0.1, 100.1, -3333.3333])
def test_targets_that_are_all_the_same_explain_nothing(same: float) -> None:
    """Their mean is not one of them to the last bit, and that is no variance."""
    target = torch.full((7, 16), same)
    assert explained_variance(torch.arange(112.0).reshape(7, 16), target) == 0


# ------------------------------------------------------------------ divergence and scale


@shapes
@given(many_samples)
def test_approximate_kl_is_its_definition(s: Samples) -> None:
    terms = [r - 1 - math.log(r) for r, _ in s.rows()]
    close(approximate_kl(s.logp, s.old_logp), sum(terms) / len(terms))


@shapes
@given(seeds, st.sampled_from([1e-7, 1e-5, 1e-3, 0.1, 1.0]))
def test_approximate_kl_is_never_negative_in_single_precision(seed: int, distance: float) -> None:
    s = samples(seed, (64,), distance)
    assert approximate_kl(s.logp.float(), s.old_logp.float()) >= 0


def test_approximate_kl_of_equal_policies_is_zero() -> None:
    s = samples(0, (64,))
    assert approximate_kl(s.logp, s.logp) == 0


def test_approximate_kl_is_unbiased() -> None:
    old, new = torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor([0.2, 0.3, 0.5]).log()
    counts = torch.tensor([50, 30, 20])  # actions exactly as often as the old policy takes them
    estimate = approximate_kl(new.repeat_interleave(counts), old.repeat_interleave(counts))
    assert estimate == pytest.approx(float((old.exp() * (old - new)).sum()), rel=1e-5)


@shapes
@given(seeds, st.integers(8, 200), st.sampled_from([1e-4, 1.0, 1e4]), st.sampled_from([0.0, 3.0, 100.0]))
def test_normalized_advantages_have_mean_0_and_deviation_1(seed: int, n: int, scale: float, shift: float) -> None:
    single = (scale * (samples(seed, (n,)).advantage + shift)).float()
    numbers = single.tolist()
    mean = sum(numbers) / n
    deviation = math.sqrt(sum((x - mean) ** 2 for x in numbers) / n + 1e-12)
    expected = torch.tensor([(x - mean) / deviation for x in numbers], dtype=torch.float64)
    torch.testing.assert_close(normalize(single.double()), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(normalize(single).double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [1, 3, 64, 1000])
def test_equal_advantages_normalize_to_zero(n: int) -> None:
    assert not normalize(torch.full((n,), 3.3)).any()


# ------------------------------------------------------------------ what is data stays data

losses = {
    "ppo_clip": lambda new, old, other: ppo_clip(new, old, other, 0.2)[0],
    "policy_gradient": lambda new, old, other: policy_gradient(new, other),
    "value_loss": lambda new, old, other: value_loss(new, other),
    "clipped_value_loss": lambda new, old, other: value_loss(new, other, old, 0.2),
}
measures = {
    "clip_fraction": lambda new, old, other: ppo_clip(new, old, other, 0.2)[1],
    "approximate_kl": lambda new, old, other: approximate_kl(new, old),
    "normalize": lambda new, old, other: normalize(new),
    "explained_variance": lambda new, old, other: explained_variance(new, other),
}


@pytest.mark.parametrize("loss", losses.values(), ids=losses)
def test_gradients_reach_the_new_alone(loss: Callable[..., Tensor]) -> None:
    s = samples(0, (32,))
    new, old, other = (x.clone().requires_grad_() for x in (s.logp, s.old_logp, s.advantage))
    loss(new, old, other).backward()
    assert new.grad is not None
    assert new.grad.any()
    assert old.grad is None
    assert other.grad is None


@pytest.mark.parametrize("measure", measures.values(), ids=measures)
def test_measures_carry_no_gradient(measure: Callable[..., Tensor]) -> None:
    s = samples(0, (32,))
    assert not measure(*(x.clone().requires_grad_() for x in (s.logp, s.old_logp, s.advantage))).requires_grad


@pytest.mark.parametrize("function", (losses | measures).values(), ids=losses | measures)
def test_a_recorded_replay_computes_the_same_bits_and_gradients(function: Callable[..., Tensor]) -> None:
    def with_gradient(new: Tensor, old: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        new = new.detach().requires_grad_()
        out = function(new, old, other)
        return (out.detach(), *torch.autograd.grad(out, new)) if out.requires_grad else (out,)

    near, far = samples(1, (64,), 0.01), samples(2, (64,), 2.0)
    replay = capture(with_gradient, near.logp, near.old_logp, near.advantage)
    given = (far.logp, far.old_logp, far.advantage)
    assert all(map(torch.equal, replay(*given), with_gradient(*given)))


column, row = torch.zeros(4, 1), torch.zeros(4)
wrong = {
    "ppo_clip old": lambda: ppo_clip(row, column, row, 0.2),
    "ppo_clip advantage": lambda: ppo_clip(row, row, column, 0.2),
    "policy_gradient": lambda: policy_gradient(row, column),
    "value_loss target": lambda: value_loss(column, row),
    "value_loss old": lambda: value_loss(row, row, column, 0.2),
    "approximate_kl": lambda: approximate_kl(row, column),
    "explained_variance": lambda: explained_variance(column, row),
}


@pytest.mark.parametrize("call", wrong.values(), ids=wrong)
def test_shapes_that_would_broadcast_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"has shape .*, expected \[\.\.\.\], \.\.\. = "):
        call()


def test_advantages_are_normalised_within_a_mask() -> None:
    x, mask = torch.randn(40, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3 == 0
    torch.testing.assert_close(normalize_within(x, mask)[mask], normalize(x[mask]))
    assert not normalize_within(x, mask & False).any()
    assert not normalize_within(torch.full((5,), 3.0), torch.ones(5, dtype=torch.bool)).any()


@pytest.mark.parametrize("number", [0.1, 3.0, -1234.567, 1e6])
def test_equal_advantages_within_a_mask_say_nothing_whatever_their_number(number: float) -> None:
    """A mean that is rounded differs from them, and the difference must not be taken for the deviation."""
    for size in range(2, 300, 7):
        x = torch.full((size + 1,), number)
        x[-1] = 0.0
        assert not normalize_within(x, torch.arange(size + 1) < size).any()


@pytest.mark.parametrize("difference", [88.0, 89.0, 1e4])
def test_a_clipped_sample_has_no_gradient_however_large_its_ratio(difference: float) -> None:
    for advantage in (1.0, 0.0):
        logp = torch.tensor([difference, 0.5], requires_grad=True)
        loss, _ = ppo_clip(logp, torch.zeros(2), torch.tensor([advantage, -1.0]), 0.2)
        loss.backward()
        assert logp.grad is not None
        assert loss.isfinite() and logp.grad.tolist() == pytest.approx([0.0, math.exp(0.5) / 2])
    assert approximate_kl(torch.tensor([difference]), torch.zeros(1)).isfinite()
