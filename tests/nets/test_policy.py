"""Policies against networks written from the definition with torch.nn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from evorl.mdp.core import Action, Box, Discrete, Input, MultiDiscrete, Spec
from evorl.nets.distributions import log_prob_entropy
from evorl.nets.policy import LSTM, Layer, Net, Policy
from evorl.util.errors import BadRequest
from evorl.util.seed import generator

torch.set_num_threads(1)

VECTOR = Spec((Input("x", (5,)),), Discrete(3), rewards=("a", "b"))


def normals(*words: int | str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(generator("test", *words).standard_normal(shape)).float()


def build(spec: Spec, net: Net, seed: int = 0) -> Policy:
    policy = Policy(spec, net)
    policy.initialise(torch.Generator().manual_seed(seed))
    return policy


def disturb(policy: Policy) -> Policy:
    """Random biases and a policy head that is not tiny, so a test sees every parameter."""
    with torch.no_grad():
        for k, parameter in enumerate(policy.parameters()):
            parameter.add_(normals("disturb", k, shape=tuple(parameter.shape)) * 0.1)
    return policy


def separate(policy: Policy, group: int, head: nn.Linear) -> nn.Sequential:
    """One group's hidden layers and a head as an ordinary network."""
    activation = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}[policy.net.activation]
    parts: list[nn.Module] = []
    for layer in policy.hidden:
        assert isinstance(layer, Layer)
        linear = nn.Linear(*layer.weight.shape[1:])
        linear.weight.data, linear.bias.data = layer.weight[group].T, layer.bias[group, 0]
        parts += [linear, activation()]
    return nn.Sequential(*parts, head)


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [(7,), (8, 6, 4)])
def test_stacked_layers_equal_separate_networks(activation: Any, shared: bool, hidden: tuple[int, ...]) -> None:
    policy = disturb(build(VECTOR, Net(hidden=hidden, activation=activation, shared=shared)))
    x = normals("x", shape=(9, 5))
    out = policy((x,))
    assert out.raw.shape == (9, 3) and out.value.shape == (9, 2) and out.carry is None and out.log_std is None
    torch.testing.assert_close(out.raw, separate(policy, 0, policy.policy)(x))
    torch.testing.assert_close(out.value, separate(policy, 0 if shared else 1, policy.value)(x))


def test_a_shared_stack_has_half_the_hidden_parameters() -> None:
    own, shared = (build(VECTOR, Net(shared=shared)) for shared in (False, True))
    assert sum(p.numel() for p in own.hidden.parameters()) == 2 * sum(p.numel() for p in shared.hidden.parameters())


def test_the_critic_of_separate_stacks_does_not_move_the_actor() -> None:
    policy = build(VECTOR, Net(hidden=(8,)))
    policy((normals("x", shape=(4, 5)),)).value.sum().backward()
    (layer,) = policy.hidden
    assert (layer.weight.grad[0] == 0).all() and (layer.weight.grad[1] != 0).any()


@pytest.mark.parametrize("shared", [False, True])
def test_without_biases_and_with_a_bounded_output(shared: bool) -> None:
    """tanh(tanh(x A) B), and nothing else has part in it."""
    policy = disturb(build(VECTOR, Net(hidden=(8, 6), shared=shared, bias=False, output="tanh")))
    assert all("bias" not in name for name, _ in policy.named_parameters())
    x = normals("x", shape=(9, 5)) * 3
    first, second = (layer.weight for layer in policy.hidden)
    actor, critic = (((x @ first[g]).tanh() @ second[g]).tanh() for g in (0, 0 if shared else 1))
    out = policy((x,))
    torch.testing.assert_close(out.raw, (actor @ policy.policy.weight.T).tanh())
    torch.testing.assert_close(out.value, critic @ policy.value.weight.T)


@pytest.mark.parametrize(("given", "key"), [({"output": "tanh"}, "output"), ({"bias": False}, "bias")])
def test_a_deviation_from_the_state_needs_a_bias_and_no_bound(given: Any, key: str) -> None:
    with pytest.raises(BadRequest) as error:
        Net(std="state", **given)
    assert error.value.key == key


def test_no_hidden_layers_is_linear() -> None:
    policy = disturb(build(VECTOR, Net(hidden=())))
    x = normals("x", shape=(4, 5))
    torch.testing.assert_close(policy((x,)).raw, policy.policy(x))


@pytest.mark.parametrize("lstm", [0, 6])
@pytest.mark.parametrize(
    "action", [Discrete(6), MultiDiscrete((3, 4)), Box((-1.0, -1.0), (1.0, 1.0))], ids=["discrete", "multi", "box"]
)
def test_the_initial_policy_is_nearly_uniform(action: Action, lstm: int) -> None:
    policy = build(Spec((Input("x", (5,)),), action), Net(lstm=lstm))
    x = normals("x", shape=(1, 50, 5))
    out = policy((x,), policy.carry(50), torch.ones(1, 50, dtype=torch.bool)) if lstm else policy((x[0],))
    if isinstance(action, Box):
        assert out.raw.abs().max() < 0.1
        return
    heads = torch.tensor([6]) if isinstance(action, Discrete) else torch.tensor(action.nvec)
    chosen = torch.zeros(*out.raw.shape[:-1], len(heads), dtype=torch.int64)
    _, entropy = log_prob_entropy(action, out.raw, None, None, chosen)
    assert entropy.min() > heads.log().sum() - 1e-3


@pytest.mark.parametrize("std", ["free", "state"])
def test_the_initial_deviation_is_the_one_asked_for(std: Any) -> None:
    net = Net(std=std, log_std=-1.5)
    out = build(Spec((Input("x", (5,)),), Box((-1.0, 0.0), (1.0, 9.0))), net)((normals("x", shape=(20, 5)),))
    log_std = out.log_std if out.log_std is not None else out.raw[:, 2:]
    assert (log_std + 1.5).abs().max() < 0.1
    assert out.raw.shape[-1] == (2 if std == "free" else 4)


@pytest.mark.parametrize("net", [Net(), Net(hidden=(256, 256), shared=True), Net(lstm=128)], ids=str)
def test_initial_weights_are_no_matter_of_threads(net: Net) -> None:
    """Workers have other numbers of them than who has drawn the same weights before."""
    spec, before, found = Spec((Input("x", (24,)),), Discrete(4)), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            policy = Policy(spec, net)
            policy.initialise(torch.Generator().manual_seed(0))
            found.append(torch.cat([x.detach().flatten() for x in policy.parameters()]))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0].equal(found[1]) and found[0].equal(found[2])


def test_initial_weights_are_orthogonal() -> None:
    policy = build(Spec((Input("x", (32,)),), Discrete(3)), Net(hidden=(16, 16), lstm=16))
    (first, second) = policy.hidden
    for weight in (*first.weight, *second.weight):
        torch.testing.assert_close(weight.T @ weight, 2 * torch.eye(16), rtol=1e-4, atol=1e-4)  # gain sqrt(2)
    for gate in policy.core.weight_h.chunk(4, -1):
        torch.testing.assert_close(gate.T @ gate, torch.eye(16), rtol=1e-4, atol=1e-4)


def test_the_same_generator_gives_the_same_weights() -> None:
    one, same, other = (build(VECTOR, Net(lstm=4), seed) for seed in (1, 1, 2))
    for a, b in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


# ------------------------------------------------------------------ recurrence


def cell_of(lstm: LSTM) -> nn.LSTMCell:
    """torch's cell with the same weights; its forget gate's bias has the +1."""
    cell = nn.LSTMCell(lstm.weight_x.shape[0], lstm.width)
    cell.weight_ih.data, cell.weight_hh.data = lstm.weight_x.T.clone(), lstm.weight_h.T.clone()
    cell.bias_ih.data, cell.bias_hh.data = lstm.bias.clone(), torch.zeros(4 * lstm.width)
    cell.bias_ih.data[lstm.width : 2 * lstm.width] += 1.0
    return cell


def random_lstm() -> LSTM:
    lstm = LSTM(3, 4)
    for k, parameter in enumerate(lstm.parameters()):
        parameter.data = normals("lstm", k, shape=tuple(parameter.shape)) * 0.5
    return lstm


def test_lstm_equals_the_cell_with_resets() -> None:
    lstm = random_lstm()
    cell = cell_of(lstm)
    x, carry = normals("x", shape=(7, 5, 3)), normals("carry", shape=(2, 5, 4))
    start = torch.from_numpy(generator("starts").random((7, 5)) < 0.3)
    out, last = lstm(x, carry, start)
    for b in range(5):
        h, c = carry[0, b : b + 1], carry[1, b : b + 1]
        for t in range(7):
            if start[t, b]:
                h, c = torch.zeros_like(h), torch.zeros_like(c)
            h, c = cell(x[t, b : b + 1], (h, c))
            torch.testing.assert_close(out[t, b], h[0])
        torch.testing.assert_close(last[:, b], torch.stack([h[0], c[0]]))


def test_two_episodes_in_one_trace_equal_two_traces() -> None:
    """Outputs and gradients; the second episode starts in the middle of the trace."""
    lstm = random_lstm()
    x, carry = normals("x", shape=(8, 2, 3)), normals("carry", shape=(2, 2, 4))
    start = torch.zeros(8, 2, dtype=torch.bool)
    start[5] = True
    weight = normals("weight", shape=(8, 2, 4))

    together, last = lstm(x, carry, start)
    gradients = torch.autograd.grad((together * weight).sum(), list(lstm.parameters()))

    first, _ = lstm(x[:5], carry, start[:5])
    second, second_last = lstm(x[5:], torch.zeros(2, 2, 4), torch.zeros(3, 2, dtype=torch.bool))
    apart = torch.cat([first, second])
    torch.testing.assert_close(together, apart)
    torch.testing.assert_close(last, second_last)
    wanted = torch.autograd.grad((apart * weight).sum(), list(lstm.parameters()))
    for got, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_nothing_flows_across_an_episode_start() -> None:
    lstm = random_lstm()
    x, carry = normals("x", shape=(6, 1, 3)).requires_grad_(), normals("carry", shape=(2, 1, 4)).requires_grad_()
    start = torch.zeros(6, 1, dtype=torch.bool)
    start[3] = True
    out, _ = lstm(x, carry, start)
    gx, gc = torch.autograd.grad(out[3:].sum(), (x, carry))
    assert (gx[:3] == 0).all() and (gc == 0).all() and (gx[3:] != 0).all()


def test_acting_step_by_step_equals_the_trace() -> None:
    spec = Spec((Input("x", (5,)), Input("y", (2, 2))), Discrete(3))
    policy = disturb(build(spec, Net(lstm=6, hidden=(8,))))
    x, y = normals("x", shape=(10, 4, 5)), normals("y", shape=(10, 4, 2, 2))
    start = torch.from_numpy(generator("starts").random((10, 4)) < 0.2)
    whole = policy((x, y), policy.carry(4), start)
    carry = policy.carry(4)
    for t in range(10):
        step = policy((x[t : t + 1], y[t : t + 1]), carry, start[t : t + 1])
        carry = step.carry
        torch.testing.assert_close(step.raw[0], whole.raw[t])
        torch.testing.assert_close(step.value[0], whole.value[t])
    torch.testing.assert_close(carry, whole.carry)


# ------------------------------------------------------------------ inputs


@pytest.mark.parametrize("lstm", [0, 5])
def test_several_inputs_are_joined_in_order(lstm: int) -> None:
    """An image, a vector, a matrix and a bare number; each of them reaches the output."""
    inputs = (Input("eye", (1, 36, 36), "uint8"), Input("v", (3,)), Input("m", (2, 2)), Input("s", ()))
    policy = disturb(build(Spec(inputs, Discrete(2)), Net(hidden=(8,), lstm=lstm)))
    lead = (2, 3) if lstm else (6,)
    image = torch.from_numpy(generator("image").integers(0, 256, (*lead, 1, 36, 36)).astype("uint8"))
    rest = [normals(one.name, shape=(*lead, *one.shape)) for one in inputs[1:]]
    memory = (policy.carry(3), torch.zeros(lead, dtype=torch.bool)) if lstm else ()

    def forward(*given: Tensor) -> Tensor:
        return policy(given, *memory).raw

    before = forward(image, *rest)
    assert before.shape == (*lead, 2)
    joined = (policy.core.weight_x if lstm else policy.hidden[0].weight[0]).shape[0]
    assert joined == 512 + 3 + 4 + 1
    for k in range(4):
        changed = [image, *rest]
        changed[k] = 255 - image if k == 0 else changed[k] + 1.0
        assert (forward(*changed) != before).all()


def test_one_image_alone() -> None:
    policy = build(Spec((Input("eye", (3, 40, 40), "uint8"),), Discrete(2)), Net())
    out = policy((torch.zeros(4, 3, 40, 40, dtype=torch.uint8),))
    assert out.raw.shape == (4, 2) and out.value.shape == (4, 1)


@pytest.mark.parametrize("log_std", [-6.0, -5.0, 2.0, 3.0])
def test_a_deviation_begins_where_it_can_learn(log_std: float) -> None:
    """Beyond the bounds that a state's deviation is kept within no gradient would lead back."""
    with pytest.raises(BadRequest, match=f"^log_std: std=state keeps it between -5 and 2, and {log_std:g} is not"):
        Net(std="state", log_std=log_std)
    assert Net(std="free", log_std=log_std).log_std == log_std
    box = Box((-1.0,), (1.0,))
    for inside in (-4.9, 0.0, 1.9):
        policy = build(Spec((Input("x", (2,)),), box), Net(std="state", log_std=inside))
        raw = policy((torch.ones(4, 2),)).raw
        log_prob_entropy(box, raw, None, None, torch.full((4, 1), 0.3))[0].sum().backward()
        assert policy.policy.bias.grad[1] != 0
