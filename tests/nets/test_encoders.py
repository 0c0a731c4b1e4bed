"""Convolutional encoders of images: the published layers, their numbers of parameters, and gradient steps with each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from harness import QUICK, fingerprint, go
from torch import Tensor, nn

from evorl.mdp.core import Discrete, Input, Spec
from evorl.nets.encoders import ENCODERS, A3CNet, Convolutions, EliteCNN, ImpalaResNet, NatureCNN
from evorl.nets.policy import Net, Policy
from evorl.util.seed import generator


def images(*shape: int) -> Tensor:
    return torch.from_numpy(generator("image").integers(0, 256, shape).astype("uint8"))


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("encoder", "shapes", "strides", "parameters"),
    [
        (NatureCNN, [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)], (4, 2, 1), 1_684_128),
        (A3CNet, [(16, 4, 8, 8), (32, 16, 4, 4), (256, 2592)], (4, 2), 676_144),
        (EliteCNN, [(64, 4, 3, 3), (64, 64, 3, 3), (128, 64, 3, 3), (512, 4608)], (3, 2, 2), 2_472_960),
    ],
)
def test_plain_convolutions_are_the_published_ones(
    encoder: type[Convolutions], shapes: list[tuple[int, ...]], strides: tuple[int, ...], parameters: int
) -> None:
    made = encoder((4, 84, 84))
    assert [tuple(p.shape) for p in made.parameters() if p.dim() > 1] == shapes and size(made) == parameters
    x = images(2, 4, 84, 84).float() / 255
    *convolutions, linear = [layer for layer in made.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    for convolution, stride in zip(convolutions, strides, strict=True):
        x = nn.functional.conv2d(x, convolution.weight, convolution.bias, stride).relu()
    torch.testing.assert_close(made(images(2, 4, 84, 84)), linear(x.flatten(1)).relu())


def test_the_resnet_is_that_of_the_paper() -> None:
    made = ImpalaResNet((4, 84, 84))
    *convolutions, linear = [layer for layer in made.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    assert len(convolutions) == 15 and tuple(linear.weight.shape) == (256, 32 * 11 * 11) and size(made) == 1_089_232
    following = iter(convolutions)

    def convolve(x: Tensor) -> Tensor:
        layer = next(following)
        return nn.functional.conv2d(x, layer.weight, layer.bias, padding=1)

    x = images(2, 4, 84, 84).float() / 255
    for small in (42, 21, 11):
        x = convolve(x)
        x = nn.functional.max_pool2d(nn.functional.pad(x, (1, 1, 1, 1), value=-torch.inf), 3, 2)
        assert x.shape[-2:] == (small, small)
        for _ in range(2):
            x = x + convolve(convolve(x.relu()).relu())
    torch.testing.assert_close(made(images(2, 4, 84, 84)), linear(x.relu().flatten(1)).relu())


def test_with_its_lstm_the_resnet_has_the_papers_number_of_parameters() -> None:
    """1.6 million in DMLab (figure 3), where the core sees the last reward, the last action and an instruction, too."""
    lab = Spec((Input("view", (3, 72, 96), "uint8"),), Discrete(9))
    assert 1.45e6 < size(Policy(lab, Net(encoder="impala", lstm=256, hidden=(), shared=True))) < 1.65e6


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("shape", [(1, 36, 36), (3, 36, 80), (4, 84, 84)])
def test_images_down_to_36_pixels_fit(kind: str, shape: tuple[int, ...]) -> None:
    encoder = Net(encoder=kind).encoders((Input("image", shape, "uint8"),))
    assert encoder((torch.zeros(2, *shape, dtype=torch.uint8),)).shape == (2, encoder.width)


@pytest.mark.parametrize("shape", [(1, 35, 84), (1, 84, 35), (3, 4, 4)])
def test_a_smaller_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="too small for these convolutions, which need 36 x 36; take"):
        NatureCNN(shape)


@pytest.mark.parametrize("kind", ENCODERS)
def test_every_convolution_gets_a_gradient(kind: str) -> None:
    policy = Policy(Spec((Input("eye", (2, 36, 36), "uint8"),), Discrete(3)), Net(encoder=kind, hidden=()))
    policy.initialise(torch.Generator().manual_seed(0))
    assert not policy.light
    out = policy((images(4, 2, 36, 36),))
    (out.raw.sum() + out.value.sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.encoders.parameters())


@pytest.mark.slow
def test_a_run_learns_with_the_resnet_and_resumes_to_the_bit(tmp_path: Path) -> None:
    small = ("mdp.size=36", "rl.slots=2", "rl.horizon=8", "rl.minibatch=16", "rl.passes=1", "checkpoint.every=0")
    asked = (*QUICK, "mdp=atari", "rl.net.encoder=impala", "rl.net.lstm=8", "mdp.time_limit=60", *small)
    words = tuple({word.partition("=")[0]: word for word in asked}.values())
    assert go(*words, "budget.steps=48", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    assert go(*words, "budget.steps=16", f"hydra.run.dir={tmp_path / 'halves'}") == 0
    assert go(f"resume={tmp_path / 'halves'}", "budget.steps=48") == 0
    stopped = [16]
    assert fingerprint(tmp_path / "halves", aside=stopped) == fingerprint(tmp_path / "whole", aside=stopped)
