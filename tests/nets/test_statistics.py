"""Running statistics against their definitions over all rows at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evorl.mdp.core import Input
from evorl.nets.statistics import CLIP, Moments, ReturnScale, RunningCovariance, RunningVariance
from evorl.util.seed import generator

torch.set_num_threads(1)

INPUTS = (Input("x", (3,)), Input("eye", (1, 2, 2), "uint8"), Input("y", (2, 2)), Input("s", ()))


def normals(*words: int | str, shape: tuple[int, ...], shift: float = 0.0) -> Tensor:
    return torch.from_numpy(generator("test", *words).standard_normal(shape)).float() * 3 + shift


def batch(number: int, horizon: int = 6, slots: int = 4) -> tuple[Tensor, ...]:
    image = torch.from_numpy(generator("eye", number).integers(0, 256, (horizon, slots, 1, 2, 2)).astype("uint8"))
    x, y, s = (
        normals(n, number, shape=(horizon, slots, *shape), shift=5)
        for n, shape in zip("xys", [(3,), (2, 2), ()], strict=True)
    )
    return x, image, y, s


@settings(max_examples=40)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.sampled_from([0.0, 100.0, -1e4]), st.integers(0, 99))
def test_batches_merge_to_all_rows_at_once(sizes: list[int], shift: float, seed: int) -> None:
    rows = normals("rows", seed, shape=(sum(sizes), 2), shift=shift)
    running = RunningVariance((2,))
    for part in rows.split(sizes):
        running.update(part)
    assert running.count == len(rows)
    torch.testing.assert_close(running.mean, rows.double().mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(running.std, rows.double().std(0, correction=0), rtol=1e-9, atol=1e-9)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.sampled_from([0.0, 100.0, -1e4]), st.integers(0, 99))
def test_covariances_merge_to_all_rows_at_once(sizes: list[int], shift: float, seed: int) -> None:
    rows = normals("rows", seed, shape=(sum(sizes), 3), shift=shift)
    running = RunningCovariance((3,))
    for part in rows.split(sizes):
        running.update(part)
    torch.testing.assert_close(running.mean, rows.double().mean(0), rtol=1e-12, atol=1e-12)
    want = sum(torch.outer(row, row) for row in rows.double() - rows.double().mean(0))
    torch.testing.assert_close(running.m2, want, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("whiten", [False, True])
def test_what_others_saw_merges_to_all_rows_at_once(whiten: bool) -> None:
    batches = [batch(k) for k in range(4)]
    whole, merged, parts = Moments(INPUTS, whiten), Moments(INPUTS, whiten), [Moments(INPUTS, whiten) for _ in "ab"]
    for k, one in enumerate(batches):
        whole.update(one)
        parts[k // 2].update(one)
    first = merged.tensors(torch.device("cpu"))
    for part in (Moments(INPUTS, whiten), *parts):  # who has seen nothing changes nothing
        merged.merge(part.state_dict())
    assert not torch.equal(first[0], merged.tensors(torch.device("cpu"))[0])
    for i, running in whole.running.items():
        assert merged.running[i].count == running.count == 4 * 24
        torch.testing.assert_close(merged.running[i].mean, running.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(merged.running[i].m2, running.m2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "int64", "int16"])
def test_numbers_of_any_type_are_normalised_alike(dtype: str, whiten: bool) -> None:
    rows = (100 * normals("numbers", shape=(50, 3))).round()
    found = []
    for kind, x in (("float32", rows), (dtype, rows.to(getattr(torch, dtype)))):
        moments = Moments((Input("x", (3,), kind),), whiten)
        moments.update((x,))
        found.append(moments.normalize(moments.tensors(torch.device("cpu")), (x,))[0])
    assert torch.equal(*found) and found[1].dtype == torch.float32 and found[0].abs().max() > 1


def test_whitened_inputs_have_unit_covariance_and_turn_no_further_than_needed() -> None:
    mix = normals("mix", shape=(4, 4))
    walk = normals("walk", shape=(50, 8, 4)) @ mix + 7
    inputs = (Input("y", (2, 2)),)
    moments, cpu = Moments(inputs, whiten=True), torch.device("cpu")
    for part in walk.split(10):
        moments.update((part.view(-1, 8, 2, 2),))
    (out,) = moments.normalize(moments.tensors(cpu), (walk.view(50, 8, 2, 2),))
    white = out.reshape(-1, 4).double()
    torch.testing.assert_close(white.mean(0), torch.zeros(4).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(white.T @ white / len(white), torch.eye(4).double(), atol=1e-4, rtol=0)
    _, turn = moments.tensors(cpu)
    torch.testing.assert_close(turn, turn.T)  # ZCA: the one symmetric whitening, positive definite
    assert torch.linalg.eigvalsh(turn).min() > 0


@pytest.mark.parametrize("alike", [False, True])
def test_whitening_keeps_the_digits_of_small_differences(alike: bool) -> None:
    """Numbers of 1000 that vary by 0.01 beside small ones, or beside others nearly alike, against float64."""
    draws = normals("digits", shape=(4000, 2)).double() / 300
    rows = torch.stack([1000 * (1 + alike * draws[:, 0]) + draws[:, 1], alike * 1000 * (1 + draws[:, 0])], 1)
    rows[:, 1] += 0 if alike else draws[:, 0]
    seen = rows.float()  # what a world gives
    moments = Moments((Input("x", (2,)),), whiten=True)
    moments.update((seen,))
    (out,) = moments.normalize(moments.tensors(torch.device("cpu")), (seen,))
    covariance = torch.cov(seen.double().T, correction=0)
    variance, axes = torch.linalg.eigh(covariance)
    want = (seen.double() - seen.double().mean(0)) @ (axes @ torch.diag(variance.rsqrt()) @ axes.T)
    torch.testing.assert_close(out.double(), want, atol=2e-6, rtol=0)
    assert out.std(0).min() > 0.9


@pytest.mark.parametrize("whiten", [False, True])
def test_inputs_without_numbers_pass(whiten: bool) -> None:
    moments = Moments((Input("none", (0,)), Input("x", (2,))), whiten)
    moments.update((torch.zeros(6, 3, 0), normals("x", shape=(6, 3, 2))))
    none, x = moments.normalize(moments.tensors(torch.device("cpu")), (torch.zeros(3, 0), torch.ones(3, 2)))
    assert none.shape == (3, 0) and x.shape == (3, 2)
    other = Moments((Input("none", (0,)), Input("x", (2,))), whiten)
    other.load_state_dict(moments.state_dict())
    assert torch.equal(other.normalize(other.tensors(torch.device("cpu")), (none, torch.ones(3, 2)))[1], x)


def test_a_few_rows_are_not_whitened() -> None:
    """The covariance of 6 rows of 4 numbers, let alone of 3, would blow up directions that it has hardly seen."""
    moments, cpu = Moments((Input("x", (4,)),), whiten=True), torch.device("cpu")
    first, more = normals("few", shape=(2, 3, 4)), normals("more", shape=(1, 3, 4))
    for rows in first.split(1):
        moments.update((rows,))
        mean, scale = moments.tensors(cpu)
        assert torch.equal(scale, torch.eye(4).double()) and mean.any()
    moments.update((more,))
    assert not torch.equal(moments.tensors(cpu)[1], torch.eye(4).double())


def test_statistics_of_one_kind_do_not_load_into_the_other() -> None:
    one, other = Moments(INPUTS[:1]), Moments(INPUTS[:1], whiten=True)
    with pytest.raises(ValueError, match=r"shape \[3\] where \[3, 3\]"):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize("whiten", [False, True])
def test_nothing_seen_yet_changes_nothing(whiten: bool) -> None:
    moments = Moments(INPUTS, whiten)
    seen = tuple(x[0] for x in batch(0))
    for out, x in zip(moments.normalize(moments.tensors(torch.device("cpu")), seen), seen, strict=True):
        torch.testing.assert_close(out, x.clamp(-CLIP, CLIP) if x.is_floating_point() else x)


def test_inputs_are_shifted_and_scaled_each_by_its_own() -> None:
    moments = Moments(INPUTS)
    batches = [batch(k) for k in range(3)]
    for one in batches:
        moments.update(one)
    out = moments.normalize(moments.tensors(torch.device("cpu")), tuple(x[0] for x in batches[0]))
    for i, x in enumerate(batches[0]):
        if INPUTS[i].dtype == "uint8":
            assert out[i] is not None and torch.equal(out[i], x[0])
            continue
        rows = torch.cat([one[i].flatten(0, 1) for one in batches]).double()
        want = (x[0].double() - rows.mean(0)) / rows.std(0, correction=0)
        torch.testing.assert_close(out[i].double(), want, rtol=1e-5, atol=1e-5)


def test_normalised_inputs_are_clipped() -> None:
    moments = Moments(INPUTS[:1])
    moments.update((normals("x", shape=(5, 5, 3)),))
    (out,) = moments.normalize(moments.tensors(torch.device("cpu")), (torch.tensor([[1e6, -1e6, 0.0]]),))
    assert out[0, :2].tolist() == [CLIP, -CLIP]


@pytest.mark.parametrize("whiten", [False, True])
def test_an_input_that_never_changes_becomes_zero(whiten: bool) -> None:
    moments = Moments(INPUTS[:1], whiten)
    for _ in range(3):
        moments.update((torch.full((5, 7, 3), 0.1),))
    (out,) = moments.normalize(moments.tensors(torch.device("cpu")), (torch.full((2, 3), 0.1),))
    assert (out == 0).all()


def test_tensors_follow_updates_and_loads() -> None:
    moments, cpu = Moments(INPUTS), torch.device("cpu")
    fresh = moments.tensors(cpu)
    moments.update(batch(0))
    first = moments.tensors(cpu)
    state = moments.state_dict()
    assert not torch.equal(first[0], fresh[0])
    moments.update(batch(1))
    assert not torch.equal(moments.tensors(cpu)[0], first[0])
    moments.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(moments.tensors(cpu), first, strict=True))
    assert len(first) == 6


def test_moments_round_trip_and_go_on_alike() -> None:
    one, other = Moments(INPUTS), Moments(INPUTS)
    one.update(batch(0))
    state = one.state_dict()
    other.load_state_dict(state)
    for moments in (one, other):
        moments.update(batch(1))
    for a, b in zip(one.tensors(torch.device("cpu")), other.tensors(torch.device("cpu")), strict=True):
        assert torch.equal(a, b)
    again = Moments(INPUTS)
    again.load_state_dict(state)  # a state is a snapshot: what came later has not changed it
    again.update(batch(1))
    assert torch.equal(again.tensors(torch.device("cpu"))[0], one.tensors(torch.device("cpu"))[0])


# ------------------------------------------------------------------ rewards


def returns_of(reward: Tensor, start: Tensor, gamma: Tensor) -> Tensor:
    """The discounted return so far of every decision's episode, by explicit sums."""
    out = torch.zeros_like(reward)
    for b in range(reward.shape[1]):
        begin = 0
        for t in range(reward.shape[0]):
            begin = t if start[t, b] else begin
            out[t, b] = sum(gamma ** (t - k) * reward[k, b] for k in range(begin, t + 1))
    return out


@pytest.mark.parametrize("parts", [1, 3])
def test_rewards_are_divided_by_the_deviation_of_the_return(parts: int) -> None:
    """Also across batches: an episode in flight keeps its return."""
    gamma = torch.tensor([0.9, 0.5])
    reward, start = normals("r", shape=(12, 5, 2)), torch.from_numpy(generator("d").random((12, 5)) < 0.2)
    start[4, 0] = start[8, 1] = True  # also where a batch begins: what happened between two belongs to neither
    scale = ReturnScale(gamma)
    seen = returns_of(reward, start, gamma).double()
    for k in range(parts):
        last = 12 // parts * (k + 1)
        rows = slice(12 // parts * k, last)
        got = scale(reward[rows], start[rows])
        deviation = seen[:last].flatten(0, 1).std(0, correction=0)
        want = (reward[rows].double() / deviation).clamp(-CLIP, CLIP)
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)


def test_scaled_rewards_are_clipped_and_silence_stays_silence() -> None:
    reward = torch.zeros(200, 1, 1)
    start = torch.zeros(200, 1, dtype=torch.bool)
    scale = ReturnScale(torch.tensor([0.0]))
    assert (scale(reward, start) == 0).all()
    reward[7] = 1000.0
    assert scale(reward, start).max() == CLIP


def test_return_scale_round_trip() -> None:
    gamma = torch.tensor([0.9])
    parts = normals("r", shape=(12, 5, 1)).split(4)
    start = torch.zeros(4, 5, dtype=torch.bool)
    one, other = ReturnScale(gamma), ReturnScale(gamma)
    other.load_state_dict(one.state_dict())  # nothing seen yet
    assert torch.equal(one(parts[0], start), other(parts[0], start))
    one(parts[1], start)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(parts[2], start), other(parts[2], start))
