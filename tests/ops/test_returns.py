"""Returns against their definitions, written as explicit sums and products over one trace at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evorl.ops.returns import gae, vtrace

torch.set_num_threads(1)

shapes = settings(max_examples=60)  # the machine may be busy
fractions = st.floats(0, 1)


@dataclass(frozen=True)
class Fragment:
    """Experience [T, B] or [T, B, R] whose ``next_value`` agrees with ``value`` within each episode."""

    reward: Tensor
    value: Tensor
    next_value: Tensor
    done: Tensor
    log_ratio: Tensor

    @property
    def trace(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.reward, self.value, self.next_value, self.done


def fragment(seed: int, horizon: int, slots: int, rewards: tuple[int, ...] = (), ends: float = 0.3) -> Fragment:
    noise = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=noise, dtype=torch.float64)

    shape = (horizon, slots, *rewards)
    value = normal(*shape)
    terminated, truncated = torch.rand(2, horizon, slots, generator=noise) < ends / 2
    aligned = [x.reshape(horizon, slots, *(1 for _ in rewards)) for x in (terminated, truncated)]
    following = torch.cat((value[1:], normal(1, *shape[1:])))
    next_value = torch.where(aligned[0], 0.0, torch.where(aligned[1], normal(*shape), following))
    return Fragment(normal(*shape), value, next_value, terminated | truncated, 0.5 * normal(horizon, slots))


fragments = st.builds(
    fragment,
    seed=st.integers(0, 2**32),
    horizon=st.integers(1, 20),
    slots=st.integers(1, 4),
    rewards=st.sampled_from([(), (1,), (3,)]),
    ends=st.sampled_from([0.0, 0.3, 1.0]),
)


# ------------------------------------------------------------------ definitions of one trace, as lists of numbers


def length(done: list[bool], t: int) -> int:
    """Actions from t to the end of its episode, or of the fragment."""
    return next((k for k, over in enumerate(done[t:], 1) if over), len(done) - t)


def k_step(reward: list[float], following: list[float], gamma: float, t: int, k: int) -> float:
    return sum(gamma**i * reward[t + i] for i in range(k)) + gamma**k * following[t + k - 1]


def gae_at(f: list[list], gamma: float, lam: float, t: int) -> float:
    """Eq. 16 before its simplification: the exponentially weighted average of the k-step advantages of eq. 14."""
    reward, value, following, done, _ = f
    end = length(done, t)
    steps = [k_step(reward, following, gamma, t, k) - value[t] for k in range(1, end + 1)]
    return (1 - lam) * sum(lam ** (k - 1) * a for k, a in enumerate(steps[:-1], 1)) + lam ** (end - 1) * steps[-1]


def vtrace_at(f: list[list], gamma: float, lam: float, clip_rho: float, clip_c: float, s: int) -> float:
    """Eq. 1, with λ of remark 2."""
    reward, value, following, done, log_ratio = f
    ratio = [math.exp(x) for x in log_ratio]
    return value[s] + sum(
        gamma ** (t - s)
        * math.prod(lam * min(clip_c, ratio[i]) for i in range(s, t))
        * (min(clip_rho, ratio[t]) * (reward[t] + gamma * following[t] - value[t]))
        for t in range(s, s + length(done, s))
    )


def vtrace_advantage_at(
    f: list[list], gamma: float, lam: float, clip_rho: float, clip_c: float, clip_pg: float, s: int
) -> float:
    """Section 4.2, where v_{s+1} is the critic's value once the episode is over."""
    reward, value, following, done, log_ratio = f
    last = length(done, s) == 1
    target = following[s] if last else vtrace_at(f, gamma, lam, clip_rho, clip_c, s + 1)
    return min(clip_pg, math.exp(log_ratio[s])) * (reward[s] + gamma * target - value[s])


def importance_at(f: list[list], gamma: float, s: int) -> float:
    """The per-decision importance-weighted return with the critic as control variate."""
    reward, value, following, done, log_ratio = f
    rest = following[s] if length(done, s) == 1 else importance_at(f, gamma, s + 1)
    ratio = math.exp(log_ratio[s])
    return ratio * (reward[s] + gamma * rest) + (1 - ratio) * value[s]


def by_definition(f: Fragment, at: Callable[[list[list], int], float]) -> Tensor:
    """A definition at every time of every trace, shaped as the rewards."""
    out = torch.empty_like(f.reward)
    for b in range(f.reward.shape[1]):
        for r in range(f.reward[0, 0].numel()):
            column = (slice(None), b, r) if f.reward.dim() == 3 else (slice(None), b)
            trace = [x[column].tolist() for x in (f.reward, f.value, f.next_value)]
            trace += [f.done[:, b].tolist(), f.log_ratio[:, b].tolist()]
            out[column] = torch.tensor([at(trace, t) for t in range(len(f.reward))], dtype=out.dtype)
    return out


def n_step_returns(f: Fragment, gamma: float) -> Tensor:
    """Discounted rewards to the end of the episode or fragment, and the value of the state that followed
    (Mnih et al. 2016, arXiv 1602.01783, algorithm S3)."""
    return by_definition(f, lambda x, t: k_step(x[0], x[2], gamma, t, length(x[3], t)))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------ oracles


@shapes
@given(fragments, fractions, fractions)
def test_gae_is_its_definition(f: Fragment, gamma: float, lam: float) -> None:
    close(gae(*f.trace, gamma, lam), by_definition(f, lambda x, t: gae_at(x, gamma, lam, t)))


@shapes
@given(fragments, fractions, fractions, st.floats(0.5, 2), st.floats(0.5, 2), st.none() | st.floats(0.5, 2))
def test_vtrace_is_its_definition(
    f: Fragment, gamma: float, lam: float, clip_rho: float, clip_c: float, clip_pg: float | None
) -> None:
    """Each clip on its own; that of the policy gradient is the first one's unless it is given."""
    hyper, clips = (gamma, lam, clip_rho, clip_c), {"clip_rho": clip_rho, "clip_c": clip_c, "clip_pg": clip_pg}
    targets, advantage = vtrace(f.log_ratio, *f.trace, gamma, lam=lam, **clips)
    close(targets, by_definition(f, lambda x, t: vtrace_at(x, *hyper, t)))
    third = clip_rho if clip_pg is None else clip_pg
    close(advantage, by_definition(f, lambda x, t: vtrace_advantage_at(x, *hyper, third, t)))


def test_a_trace_factor_of_zero_cuts_the_trace_there() -> None:
    """As a KL mask does: what is after a rejected decision reaches no decision before it."""
    f = fragment(3, 9, 2, (1,))
    trusted = torch.ones_like(f.log_ratio)
    trusted[4] = 0
    cut, _ = vtrace(f.log_ratio, *f.trace, 0.9, lam=trusted.unsqueeze(-1))
    f.reward[5:] += 100
    changed, _ = vtrace(f.log_ratio, *f.trace, 0.9, lam=trusted.unsqueeze(-1))
    assert torch.equal(cut[:5], changed[:5]) and not torch.isclose(cut[5:], changed[5:]).any()


@shapes
@given(fragments, fractions)
def test_vtrace_without_clips_is_the_importance_weighted_return(f: Fragment, gamma: float) -> None:
    targets, _ = vtrace(f.log_ratio, *f.trace, gamma, clip_rho=math.inf, clip_c=math.inf)
    close(targets, by_definition(f, lambda x, t: importance_at(x, gamma, t)))


# ------------------------------------------------------------------ special cases equal other functions


@shapes
@given(fragments, fractions)
def test_gae_with_lambda_1_is_the_return_less_the_value(f: Fragment, gamma: float) -> None:
    close(gae(*f.trace, gamma, 1.0), n_step_returns(f, gamma) - f.value)


def monte_carlo(reward: Tensor, done: Tensor, gamma: float) -> Tensor:
    """The sum of the rewards to the episode's or the fragment's end, with nothing for what follows."""
    nothing = torch.zeros_like(reward)
    return gae(reward, nothing, nothing, done, gamma, 1.0)


@shapes
@given(fragments, fractions)
def test_gae_with_lambda_1_is_monte_carlo_less_the_value_where_all_episodes_terminate(
    f: Fragment, gamma: float
) -> None:
    done = f.done.clone()
    done[-1] = True
    next_value = torch.cat((f.value[1:], f.value[:1])) * ~done.reshape(*done.shape, *(1 for _ in f.reward.shape[2:]))
    close(gae(f.reward, f.value, next_value, done, gamma, 1.0), monte_carlo(f.reward, done, gamma) - f.value)


@shapes
@given(fragments, fractions)
def test_gae_with_lambda_0_is_the_temporal_difference(f: Fragment, gamma: float) -> None:
    close(gae(*f.trace, gamma, 0.0), f.reward + gamma * f.next_value - f.value)


@shapes
@given(fragments, fractions)
def test_vtrace_on_policy_is_the_n_step_return(f: Fragment, gamma: float) -> None:
    returns = n_step_returns(f, gamma)
    targets, advantage = vtrace(torch.zeros_like(f.log_ratio), *f.trace, gamma)
    close(targets, returns)
    close(advantage, returns - f.value)


@shapes
@given(fragments, fractions, fractions)
def test_vtrace_on_policy_with_lambda_is_the_critics_target_of_gae(f: Fragment, gamma: float, lam: float) -> None:
    targets, _ = vtrace(torch.zeros_like(f.log_ratio), *f.trace, gamma, lam=lam)
    close(targets, gae(*f.trace, gamma, lam) + f.value)


# ------------------------------------------------------------------ episodes, rewards and slots are independent

Operation = Callable[[Fragment, "float | Tensor"], Tensor]
operations: dict[str, Operation] = {
    "gae": lambda f, gamma: gae(*f.trace, gamma, 0.95),
    "vtrace": lambda f, gamma: torch.stack(vtrace(f.log_ratio, *f.trace, gamma)),
}
every_operation = pytest.mark.parametrize("operation", operations.values(), ids=operations)


def joined(first: Fragment, second: Fragment, axis: int = 0) -> Fragment:
    parts = zip(vars(first).values(), vars(second).values(), strict=True)
    return Fragment(*(torch.cat(part, axis) for part in parts))


@every_operation
@shapes
@given(seed=st.integers(0, 2**32), lengths=st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_two_episodes_in_one_trace_equal_two_traces(operation: Operation, seed: int, lengths: tuple[int, int]) -> None:
    first, second = fragment(seed, lengths[0], 3, (2,)), fragment(seed + 1, lengths[1], 3, (2,))
    first.done[-1] = True
    apart = torch.cat((operation(first, 0.9), operation(second, 0.9)), -3)
    assert torch.equal(operation(joined(first, second), 0.9), apart)


@every_operation
@shapes
@given(seed=st.integers(0, 2**32), slots=st.integers(1, 9))
def test_a_slot_does_not_depend_on_its_neighbours(operation: Operation, seed: int, slots: int) -> None:
    first, second = fragment(seed, 17, slots), fragment(seed + 1, 17, 2)
    together = operation(joined(first, second, axis=1), 0.9)
    assert torch.equal(together, torch.cat((operation(first, 0.9), operation(second, 0.9)), -1))


@every_operation
@shapes
@given(seed=st.integers(0, 2**32), gammas=st.lists(fractions, min_size=1, max_size=3))
def test_discounts_per_reward_equal_separate_calls(operation: Operation, seed: int, gammas: list[float]) -> None:
    f = fragment(seed, 11, 2, (len(gammas),))
    together = operation(f, torch.tensor(gammas, dtype=torch.float64))
    for r, gamma in enumerate(gammas):
        alone = replace(f, reward=f.reward[..., r], value=f.value[..., r], next_value=f.next_value[..., r])
        close(together[..., r], operation(alone, gamma))


def test_lambda_per_reward_equals_separate_calls() -> None:
    f = fragment(0, 11, 2, (2,))
    together = gae(*f.trace, 0.9, torch.tensor([0.2, 1.0], dtype=torch.float64))
    close(together[..., 0], gae(*f.trace, 0.9, 0.2)[..., 0])
    close(together[..., 1], gae(*f.trace, 0.9, 1.0)[..., 1])


# ------------------------------------------------------------------ precision, gradients, refusals


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999, 1.0])
def test_single_precision_is_as_good_as_that_of_a_loop(gamma: float) -> None:
    f = fragment(3, 2048, 2, ends=0.002)
    reward = f.reward.float()
    exact = monte_carlo(reward.double(), f.done, gamma)
    found = monte_carlo(reward, f.done, gamma)
    loop = reward.clone()
    for t in reversed(range(len(loop) - 1)):
        loop[t] += gamma * ~f.done[t] * loop[t + 1]
    scale = exact.abs().max()
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() < 2 * (loop - exact).abs().max() + 1e-6 * scale < 3e-5 * scale


@every_operation
def test_targets_carry_no_gradient_and_change_no_argument(operation: Operation) -> None:
    f = fragment(0, 9, 3)
    tracked = Fragment(*(x.clone().requires_grad_(x.is_floating_point()) for x in vars(f).values()))
    assert not operation(tracked, 0.9).requires_grad
    assert all(torch.equal(a, b) for a, b in zip(vars(f).values(), vars(tracked).values(), strict=True))


@pytest.mark.parametrize("name", ["reward", "value", "next_value", "done"])
def test_wrong_shapes_are_refused_by_name(name: str) -> None:
    f = fragment(0, 5, 3, (2,))
    wrong = replace(f, **{name: getattr(f, name)[:, :2]})
    with pytest.raises(ValueError, match=r"has shape .*, expected \[T, B"):
        gae(*wrong.trace, 0.9, 0.9)


def test_a_wrong_shape_is_told_with_the_sizes_expected() -> None:
    f = fragment(0, 5, 3)
    with pytest.raises(ValueError, match=r"^next_value has shape \[5\], expected \[T, B, \.\.\.\], T = 5, B = 3"):
        gae(f.reward, f.value, f.next_value[:, 0], f.done, 0.9, 0.9)
    with pytest.raises(ValueError, match=r"^log_ratio has shape \[4, 3\], expected \[T, B\], T = 5, B = 3"):
        vtrace(f.log_ratio[1:], *f.trace, 0.9)
    with pytest.raises(ValueError, match=r"^done has shape \[5, 3, 1\], expected \[T, B\], T = 5, B = 3"):
        gae(f.reward, f.value, f.next_value, f.done.unsqueeze(-1), 0.9, 0.9)
