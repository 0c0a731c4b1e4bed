"""Encoders of a world's inputs: what a network computes of them first. The key ``rl.net.encoder`` chooses one.

evorl's are four convolutional networks of images, uint8 [N, C, H, W]. All see pixels scaled to [0, 1]. With ``dense`` a
linear layer follows the convolutions. Other inputs are flattened.

To write an encoder: subclass `Encoder`, name it by an entry point of a plugin in the group ``evorl.encoders`` (or add
it to `ENCODERS`), and call `check` of `evorl.nets.conformance` in its test.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from evorl.mdp.core import Input
from evorl.util.errors import BadRequest, nearest
from evorl.util.kinds import Kinds, NoKeys, options_of

Inputs = tuple[Input, ...]


class Encoder(nn.Module, ABC):
    """A function of all inputs, each ``[N, *shape]``, to features float32 ``[N, width]``.

    It is straight-line, without random numbers, and has no state but its parameters: a row's features depend on that
    row alone. Weights of linear layers and convolutions are drawn as the learner's paper says.
    """

    options: ClassVar[type] = NoKeys
    """The dataclass of its options, if it is a plugin's: the keys ``rl.net.own.NAME``."""
    light: bool = False
    """Whether gradient steps are replayed (`evorl.nets.capture`), which pays where operations are short. Not every
    operation can be."""
    width: int
    """Numbers of a row of features."""

    def __init__(self, inputs: Inputs, keys: Any, dense: bool = True) -> None:
        """``keys``: its options. ``dense``: whether it may end in a linear layer; those of action values do not, since
        hidden layers follow."""
        super().__init__()

    @abstractmethod
    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The features [N, width] of N rows."""

    def initialise(self, generator: torch.Generator) -> None:
        """Draw parameters that are not of linear layers or convolutions; those have been drawn."""
        return


class Convolutions(nn.Module):
    """Convolutions without padding and a linear layer, each followed by a ReLU: uint8 [N, C, H, W] -> [N, width].

    ``convolutions``: channels, kernel and stride of each.
    """

    convolutions: Sequence[tuple[int, int, int]]
    dense_width = 512

    def __init__(self, shape: tuple[int, ...], dense: bool = True) -> None:
        super().__init__()
        channels, height, width = shape
        modules: list[nn.Module] = []
        for planes, kernel, stride in self.convolutions:
            modules += [nn.Conv2d(channels, planes, kernel, stride), nn.ReLU()]
            channels, height, width = planes, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if min(height, width) < 1:
            given, least = " x ".join(map(str, shape)), _least_side(self.convolutions)
            raise BadRequest(
                f"pictures of {given} are too small for these convolutions, which need {least} x {least}; take "
                "rl.net.encoder=impala, or let the world give them as float32, which is no picture",
                "mdp",
            )
        size = channels * height * width
        last = (nn.Linear(size, self.dense_width), nn.ReLU()) if dense else ()
        self.layers = nn.Sequential(*modules, nn.Flatten(), *last)
        self.width = self.dense_width if dense else size

    def forward(self, image: Tensor) -> Tensor:
        out: Tensor = self.layers(scaled(image))
        return out


def _least_side(convolutions: Sequence[tuple[int, int, int]]) -> int:
    """Pixels of the smallest square that convolutions take."""
    side = 1
    for _, kernel, stride in reversed(convolutions):
        side = (side - 1) * stride + kernel
    return side


class NatureCNN(Convolutions):
    """Mnih et al. 2015 (Methods, "Model architecture")."""

    convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


class A3CNet(Convolutions):
    """The network of A3C (Mnih et al. 2016, section 8), which is that of Mnih et al. 2013: a third of Nature's work."""

    convolutions = ((16, 8, 4), (32, 4, 2))
    dense_width = 256


class EliteCNN(Convolutions):
    """The network of github.com/parralplex/elite_buffer_vtrace, which does not scale pixels."""

    convolutions = ((64, 3, 3), (64, 3, 2), (128, 3, 2))


class ImpalaResNet(nn.Module):
    """The deep network of Espeholt et al. 2018 (figure 3, right) without its LSTM: 15 convolutions, 256 features."""

    def __init__(self, shape: tuple[int, ...], dense: bool = True) -> None:
        super().__init__()
        channels, height, width = shape
        planes = (16, 32, 32)
        self.sections = nn.Sequential(*(_section(i, o) for i, o in pairwise((channels, *planes))))
        for _ in planes:
            height, width = (height + 1) // 2, (width + 1) // 2
        size = planes[-1] * height * width
        last = (nn.Linear(size, 256), nn.ReLU()) if dense else ()
        self.head = nn.Sequential(nn.ReLU(), nn.Flatten(), *last)
        self.width = 256 if dense else size

    def forward(self, image: Tensor) -> Tensor:
        out: Tensor = self.head(self.sections(scaled(image)))
        return out


def scaled(image: Tensor) -> Tensor:
    """Return pixels in [0, 1], float32 [N, C, H, W], with channels last in memory: the convolutions that follow keep
    this order, and their gradients take less time."""
    # by moving axes, since vmap knows no memory formats
    return image.movedim(-3, -1).contiguous().movedim(-1, -3).float().div_(255.0)


def _section(channels: int, planes: int) -> nn.Module:
    """A convolution, a pooling that halves the image, and two residual blocks."""
    convolution, pooling = nn.Conv2d(channels, planes, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)
    return nn.Sequential(convolution, pooling, Residual(planes), Residual(planes))


class Residual(nn.Module):
    """x plus two convolutions of it, with a ReLU before each (He et al. 2016, identity mappings)."""

    def __init__(self, planes: int) -> None:
        super().__init__()
        first, second = (nn.Conv2d(planes, planes, 3, padding=1) for _ in range(2))
        self.branch = nn.Sequential(nn.ReLU(), first, nn.ReLU(), second)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.branch(x)
        return out


class Flatten(nn.Module):
    """Any input as a float vector: [N, ...] -> [N, I]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.width = math.prod(shape)

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1).to(torch.float32)


class ImageEncoder(Encoder):
    """Each input by itself, side by side: images by a convolutional network, others flattened."""

    images: ClassVar[type[Convolutions | ImpalaResNet]]

    def __init__(self, inputs: Inputs, keys: Any, dense: bool = True) -> None:
        super().__init__(inputs, keys, dense)
        self.width = 0
        for number, entry in enumerate(inputs):
            module = self.images(entry.shape, dense) if is_image(entry) else Flatten(entry.shape)
            self.add_module(str(number), module)
            self.width += module.width
        self.light = not any(map(is_image, inputs))

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        rows = [encode(x) for encode, x in zip(self.children(), inputs, strict=True)]
        return rows[0] if len(rows) == 1 else torch.cat(rows, -1)


class Nature(ImageEncoder):
    images = NatureCNN


class A3C(ImageEncoder):
    images = A3CNet


class Impala(ImageEncoder):
    images = ImpalaResNet


class Elite(ImageEncoder):
    images = EliteCNN


ENCODERS: Mapping[str, type[Encoder]] = {"nature": Nature, "a3c": A3C, "impala": Impala, "elite": Elite}
KINDS = Kinds(Encoder, ENCODERS, "evorl.encoders", "encoder")


def encoder_of(name: str, own: Mapping[str, Any], inputs: Inputs, dense: bool = True) -> Encoder:
    """The encoder of this name for these inputs; ``own``: options of plugins' encoders by name."""
    kind, keys = choice(name, own)
    return kind(inputs, keys, dense)


def choice(name: str, own: Mapping[str, Any]) -> tuple[type[Encoder], Any]:
    """The class of an encoder and its options. Raises `BadRequest` for an unknown name and for wrong options."""
    if name not in ENCODERS and name not in KINDS.of_plugins():
        known = [*ENCODERS, *KINDS.of_plugins()]
        there = f"; there are {', '.join(known)}"
        raise BadRequest(f"no encoder {name!r}{nearest(name, known) or there}", KINDS.key)
    KINDS.check_named(own, "own")
    kind = KINDS.kind_of(name)
    return kind, options_of(name, kind.options, own, "own")


def draw_own_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Let each encoder in a network, also one within another, draw its own parameters."""
    for each in module.modules():
        if isinstance(each, Encoder):
            each.initialise(generator)


def is_image(entry: Input) -> bool:
    """Whether an input is a picture, which convolutions encode."""
    return len(entry.shape) == 3 and entry.dtype == "uint8"
