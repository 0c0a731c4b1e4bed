"""Captured functions: the same numbers as eager autograd, the same bits every time."""

from __future__ import annotations

import hashlib
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from evorl.cluster.processes.fork import forked
from evorl.mdp.core import Action, Box, Discrete, Input, MultiDiscrete, Spec
from evorl.nets.capture import Trace, TraceCache, capture
from evorl.nets.distributions import draw_noise, log_prob_entropy, noise_size, sample
from evorl.nets.flat import Layout
from evorl.nets.policy import Net, Policy
from evorl.ops.losses import approximate_kl, ppo_clip, value_loss
from evorl.util.seed import generator

torch.set_num_threads(1)

Case = tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]


def normals(*words: int | str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(generator("test", *words).standard_normal(shape)).float()


def ppo_case(action: Action, net: Net) -> Case:
    """The gradient of PPO's loss on 16 rows, and the loss."""
    inputs = (Input("x", (5,)), Input("y", (2,)))
    spec = Spec(inputs, action, rewards=("a", "b"), masked=not isinstance(action, Box))
    policy = Policy(spec, net)
    policy.initialise(torch.Generator().manual_seed(0))
    layout = Layout.of(policy)
    theta = layout.flatten(dict(policy.named_parameters()))
    theta = theta + normals("theta", shape=tuple(theta.shape)) * 0.05
    seen = tuple(normals(one.name, shape=(16, *one.shape)) for one in inputs)
    legal = torch.ones(16, noise_size(action), dtype=torch.bool)
    legal[::3, 0] = False
    mask = legal if spec.masked else None

    def gradient(theta: Tensor, chosen: Tensor, old: Tensor, advantage: Tensor, target: Tensor, *seen: Tensor):
        theta = theta.detach().requires_grad_()
        out = functional_call(policy, layout.unflatten(theta), (seen,))
        log_prob, entropy = log_prob_entropy(action, out.raw, out.log_std, mask, chosen)
        surrogate, clipped = ppo_clip(log_prob, old, advantage, 0.2)
        loss = surrogate + 0.5 * value_loss(out.value, target, out.value.detach() + 0.1, 0.2) - 0.01 * entropy.mean()
        (g,) = torch.autograd.grad(loss, theta)
        return g, loss.detach(), clipped, approximate_kl(log_prob, old)

    noise = torch.from_numpy(draw_noise(action, generator("noise"), (16,)))
    raw = functional_call(policy, layout.unflatten(theta), (seen,))
    chosen = sample(action, raw.raw, raw.log_std, mask, noise)
    old, _ = log_prob_entropy(action, raw.raw, raw.log_std, mask, chosen)
    old = old + normals("old", shape=(16,)) * 0.2
    return gradient, (theta, chosen, old, normals("a", shape=(16,)), normals("t", shape=(16, 2)), *seen)


CASES: dict[str, Callable[[], Case]] = {
    "discrete": lambda: ppo_case(Discrete(4), Net(hidden=(8, 8))),
    "multi, shared relu": lambda: ppo_case(MultiDiscrete((3, 2)), Net(hidden=(8,), shared=True, activation="relu")),
    "box, free": lambda: ppo_case(Box((-1.0, -1.0), (1.0, 1.0)), Net(hidden=(8, 6), activation="silu")),
    "box, state": lambda: ppo_case(Box((-1.0, -1.0), (1.0, 1.0)), Net(hidden=(8,), std="state")),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@cases
def test_replay_equals_eager_autograd(case: Callable[[], Case]) -> None:
    function, arguments = case()
    replay = capture(function, *arguments)
    for trial in range(2):  # the captured arguments, then others
        theta = arguments[0] + trial * normals("step", shape=tuple(arguments[0].shape)) * 0.1
        given = (theta, *arguments[1:3], arguments[3] * (1 - 2 * trial), *arguments[4:])
        for got, want in zip(replay(*given), function(*given), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)
            assert not got.requires_grad


@cases
def test_every_replay_has_the_same_bits(case: Callable[[], Case]) -> None:
    function, arguments = case()
    first = capture(function, *arguments)
    runs = [first(*arguments) for _ in range(4)]
    runs += [capture(function, *arguments)(*arguments) for _ in range(2)]
    other = tuple(x.clone() if i else x * 1.5 for i, x in enumerate(arguments))
    runs.append(capture(function, *other)(*arguments))  # what it was recorded with leaves no mark
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


def test_arguments_keep_their_values_while_recording() -> None:
    function, arguments = CASES["discrete"]()
    before = [x.clone() for x in arguments]
    capture(function, *arguments)(*arguments)
    assert all(torch.equal(x, b) for x, b in zip(arguments, before, strict=True))


def test_what_is_written_in_place_is_written_by_replays_alone() -> None:
    def step(theta: Tensor, velocity: Tensor, rate: Tensor) -> tuple[Tensor, ...]:
        leaf = theta.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(leaf.square().sum(), leaf)
        velocity.mul_(0.5).add_(gradient)
        theta.sub_(rate * velocity)
        return (theta.square().sum(),)

    theta, velocity, rate = normals("theta", shape=(4,)), torch.zeros(4), torch.tensor(0.1)
    kept = theta.clone()
    replay = capture(step, theta, velocity, rate)
    assert torch.equal(theta, kept) and (velocity == 0).all()
    want, speed = kept.clone(), torch.zeros(4)
    for rate_now in (0.1, 0.1, 0.5):
        (norm,) = replay(theta, velocity, rate.fill_(rate_now))
        speed = speed * 0.5 + 2 * want
        want = want - rate_now * speed
        torch.testing.assert_close(theta, want)
        torch.testing.assert_close(norm, want.square().sum())


def test_an_argument_may_be_returned() -> None:
    replay = capture(lambda x, y: (x, y, x + y), torch.ones(2), torch.zeros(2))
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert [out.tolist() for out in replay(x, y)] == [[1, 2], [3, 4], [4, 6]]


def test_results_may_have_names_and_records_are_made_once_for_each_shape() -> None:
    seen: list[torch.Size] = []

    def named(x: Tensor) -> dict[str, Tensor]:
        seen.append(x.shape)
        return {"double": 2 * x, "sum": x.sum()}

    records = TraceCache()
    with torch.inference_mode():  # as acting does
        for size in (2, 3, 2, 3):
            x = torch.arange(float(size))
            found = records.replay(named, x)
            assert {name: one.tolist() for name, one in found.items()} == {
                "double": (2 * x).tolist(), "sum": x.sum().item(),
            }  # fmt: skip
            assert [one.tolist() for one in records.replay(lambda x: (x + 1,), x)] == [(x + 1).tolist()]
    assert seen == [(2,), (3,)]


def test_views_of_what_is_no_argument_are_made_once_and_show_what_it_holds() -> None:
    """Weights that a function reads: a decision of a small network would spend a quarter of its time on their views."""
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    with torch.no_grad():

        def function(x: Tensor) -> tuple[Tensor, ...]:
            first, second = weights.split(2)
            both = second.exp().view(1, 2)  # no view of weights, though one of what is made of them
            return x @ first.view(2, 1), both + x, second.view(2, 1)

        record = Trace.of(function, torch.ones(1, 2))
        kept = [str(call.operation).split(".")[1] for call in record.without_views().calls]
        assert kept == ["exp", "view", "mm", "add", "view"]
        replay = capture(function, torch.ones(1, 2))
        for number in range(2):
            weights += number
            x = torch.tensor([[5.0, float(number)]])
            assert [out.tolist() for out in replay(x)] == [out.tolist() for out in function(x)]


def test_what_is_written_in_place_is_no_view() -> None:
    counted = torch.zeros(1)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        counted.add_(1)
        return (x + counted.view(1),)

    with torch.no_grad():
        replay = capture(function, torch.zeros(1))
        before = counted.item()
        assert [replay(torch.zeros(1))[0].item() for _ in range(3)] == [before + n for n in (1, 2, 3)]


def test_an_argument_may_lie_in_memory_in_another_way_than_the_example() -> None:
    """As pictures with channels last do, which have no view that is flat."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return (x.flatten(1) + 1, x.float().flatten(1).sum(1))

    replay = capture(function, torch.zeros(2, 3, 4))
    x = torch.arange(24.0).reshape(2, 4, 3).mT
    assert [out.tolist() for out in replay(x)] == [out.tolist() for out in function(x)]


def test_several_threads_record_one_after_the_other() -> None:
    """Two at once found each other's parameters in the network that both of them recorded."""
    at_work, most, shapes = [0], [0], list[int]()
    together = threading.Barrier(6)

    def make(function: Callable[..., Any], x: Tensor) -> Callable[..., Any]:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        shapes.append(len(x))
        time.sleep(0.05)
        at_work[0] -= 1
        return function

    def double(records: TraceCache, x: Tensor) -> Any:
        together.wait()
        return records.replay(lambda x: 2 * x, x) if len(x) > 2 else records.replay(torch.neg, x)

    caches = (TraceCache(make), TraceCache(make))
    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(double, caches[n % 2], torch.ones(2 if n < 4 else 3)) for n in range(6)]
    assert [job.result().tolist() for job in jobs] == [[-1, -1]] * 4 + [[2, 2, 2]] * 2
    assert most == [1] and sorted(shapes) == [2, 2, 3, 3], "each cache records each form once"


def test_a_child_that_is_forked_while_a_thread_records_can_record() -> None:
    begun, ends = threading.Event(), threading.Event()

    def make(function: Callable[..., Any], x: Tensor) -> Callable[..., Any]:
        begun.set()
        ends.wait(60)
        return function

    def child() -> bytes:
        signal.alarm(20)  # kills a child that waits for ever
        return bytes(TraceCache(lambda function, x: function).replay(torch.neg, torch.tensor([-7])).tolist())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(TraceCache(make).replay, torch.neg, torch.ones(1))
        try:
            assert begun.wait(60)
            with forked(child) as answer:
                assert answer() == b"\x07"
        finally:
            ends.set()


def test_acting_on_images_is_captured_and_their_gradient_is_refused() -> None:
    convolution = torch.nn.Conv2d(1, 4, 3)
    weight = convolution.weight.detach()

    def forward(weight: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        return (torch.conv2d(image.float() / 255, weight).relu(),)

    def gradient(weight: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        leaf = weight.detach().requires_grad_()
        return torch.autograd.grad(forward(leaf, image)[0].sum(), leaf)

    image = torch.from_numpy(generator("image").integers(0, 256, (2, 1, 9, 9)).astype("uint8"))
    assert torch.equal(capture(forward, weight, image)(weight, image)[0], forward(weight, image)[0])
    with pytest.raises(RuntimeError, match="unsupported argument type"):
        capture(gradient, weight, image)


def digest() -> str:
    """The bits of every case's replay."""
    total = hashlib.sha256()
    for case in CASES.values():
        function, arguments = case()
        for out in capture(function, *arguments)(*arguments):
            total.update(out.numpy().tobytes())
    return total.hexdigest()


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_bits(elsewhere: Callable[[str], str]) -> None:
    assert elsewhere("digest()") == digest()
