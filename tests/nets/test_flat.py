"""Parameters to one vector and back."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call

from evorl.mdp.core import Box, Input, Spec
from evorl.nets.flat import Layout
from evorl.nets.policy import Net, Policy

torch.set_num_threads(1)


def policy(hidden: tuple[int, ...] = (6, 4)) -> Policy:
    made = Policy(Spec((Input("x", (5,)),), Box((-1.0,), (1.0,))), Net(hidden=hidden, lstm=3))
    made.initialise(torch.Generator().manual_seed(0))
    return made


def test_round_trip() -> None:
    module = policy()
    layout = Layout.of(module)
    named = dict(module.named_parameters())
    theta = layout.flatten(named)
    assert theta.shape == (sum(p.numel() for p in module.parameters()),) and not theta.requires_grad
    back = layout.unflatten(theta)
    assert list(back) == list(named)
    assert all(torch.equal(back[name], named[name]) for name in named)
    assert torch.equal(layout.flatten(back), theta)


def test_the_order_is_the_modules_whatever_the_dictionary_says() -> None:
    module = policy()
    layout = Layout.of(module)
    named = dict(module.named_parameters())
    assert torch.equal(layout.flatten(dict(reversed(named.items()))), layout.flatten(named))


def test_parts_are_views_that_carry_gradients() -> None:
    module = policy()
    layout = Layout.of(module)
    theta = layout.flatten(dict(module.named_parameters())).requires_grad_()
    arguments = ((torch.ones(1, 2, 5),), torch.zeros(2, 2, 3), torch.ones(1, 2, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(functional_call(module, layout.unflatten(theta), arguments).value.sum(), theta)
    module(*arguments).value.sum().backward()
    wanted = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in module.named_parameters()}
    torch.testing.assert_close(gradient, layout.flatten(wanted))
    copy = theta.detach()
    layout.unflatten(copy)["log_std"].fill_(7.0)
    assert (copy == 7.0).sum() == 1


def test_flattening_copies() -> None:
    module = policy()
    theta = Layout.of(module).flatten(dict(module.named_parameters()))
    theta.zero_()
    assert any(p.abs().sum() > 0 for p in module.parameters())


def test_a_missing_and_a_foreign_name_are_named() -> None:
    layout = Layout.of(policy())
    named = dict(policy().named_parameters())
    named["strange"] = named.pop("log_std")
    with pytest.raises(ValueError, match=r"\['log_std', 'strange'\]"):
        layout.flatten(named)


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"parameter hidden.0.weight has shape \[2, 3, 7\], the network wants"):
        Layout.of(policy()).flatten(dict(policy((7, 4)).named_parameters()))


def test_a_copy_for_a_state_comes_back() -> None:
    """Also as arrays, which is what a message makes of it."""
    layout = Layout.of(policy())
    theta = torch.randn(sum(layout.sizes), generator=torch.Generator().manual_seed(1))
    named, other = layout.copied(theta), torch.zeros_like(theta)
    assert all(torch.equal(named[name], x) for name, x in layout.unflatten(theta).items())
    layout.load(other, {name: x.numpy() for name, x in reversed(named.items())})
    assert torch.equal(other, theta)
    theta.zero_()
    layout.load(other, named)
    assert other.any() and not torch.equal(other, theta)  # neither is a view


def test_what_does_not_fit_is_not_loaded() -> None:
    layout = Layout.of(policy())
    theta = torch.zeros(sum(layout.sizes))
    with pytest.raises(ValueError, match=r"parameter hidden.0.weight has shape"):
        layout.load(theta, dict(policy((7, 4)).named_parameters()))
    assert not theta.any()
