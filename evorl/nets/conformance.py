"""Conformance test of encoders: it computes features of random rows, and reports the first broken rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from evorl.mdp.core import Input
from evorl.nets.capture import capture
from evorl.nets.encoders import Encoder
from evorl.nets.flat import Layout
from evorl.nets.policy import uniform_weights
from evorl.util import seed as seeds
from evorl.util.conformance import Nonconformity as Nonconformity
from evorl.util.conformance import require as require
from evorl.util.errors import reason
from evorl.util.typed import typed

ROWS = 6


def check(kind: type[Encoder], *inputs: Input, **options: Any) -> None:
    """Raise `Nonconformity`, with one sentence, unless encoders of these inputs keep these rules.

    * Features are finite, float32 [N, width], also without ``dense``. Those of a row depend on that row alone.
    * The same rows get the same features. Nothing is written into the inputs, and no state changes.
    * The same seed gives the same weights: parameters that are not of linear layers or convolutions are drawn by
      `Encoder.initialise`, and buffers are constants.
    * All parameters get gradients.
    * Several of them are computed at once, with their weights stacked (`torch.func.vmap`), as populations and opponents
      are. The operations can be replayed (`evorl.nets.capture`), and of one that is `light` those of its gradient.
    """
    keys: Any = typed(options, kind.options)
    encoder = _drawn(kind(inputs, keys))
    _check_weights(encoder, _drawn(kind(inputs, keys)))
    rows = _rows(inputs)
    _check_features(encoder, rows)
    _check_features(_drawn(kind(inputs, keys, dense=False)), rows)
    _check_stacked(encoder, rows)
    _check_replays(encoder, rows)


def _drawn(encoder: Encoder) -> Encoder:
    uniform_weights(encoder, torch.Generator().manual_seed(seeds.key("conformance") >> 1))
    return encoder


def _rows(inputs: Sequence[Input]) -> tuple[Tensor, ...]:
    draw = seeds.generator("conformance")
    arrays = (
        draw.integers(0, 256, (ROWS, *x.shape)) if x.dtype == "uint8" else draw.standard_normal((ROWS, *x.shape))
        for x in inputs
    )
    return tuple(torch.from_numpy(np.asarray(x, own.dtype)) for x, own in zip(arrays, inputs, strict=True))


def _state(encoder: Encoder) -> list[Tensor]:
    return [x.detach().clone() for x in (*encoder.parameters(), *encoder.buffers())]


def _equal(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def _check_weights(encoder: Encoder, twin: Encoder) -> None:
    why = "parameters that are not of linear layers or convolutions are drawn in `initialise`, buffers are constants"
    require(_equal(_state(encoder), _state(twin)), f"the same seed gives other weights; {why}")


def _check_features(encoder: Encoder, rows: tuple[Tensor, ...]) -> None:
    before, copies = _state(encoder), [x.clone() for x in rows]
    features = encoder(rows)
    form = f"{str(features.dtype).removeprefix('torch.')} {list(features.shape)}"
    right = features.dtype == torch.float32 and features.shape == (ROWS, encoder.width)
    require(right, f"features of {ROWS} rows are {form}, not float32 {[ROWS, encoder.width]}, by its `width`")
    require(bool(torch.isfinite(features).all()), "a feature is not finite")
    require(_equal(rows, copies), "it writes into its inputs")
    require(torch.equal(encoder(rows), features), "the same rows get other features the second time")
    require(_equal(_state(encoder), before), "it changes its parameters or buffers")
    alone = torch.cat([encoder(tuple(x[n : n + 1] for x in rows)) for n in range(ROWS)])
    require(_close(alone, features), "a row's features depend on the other rows")
    named = dict(encoder.named_parameters())
    for name, gradient in zip(named, _gradients(features, [*named.values()]), strict=True):
        require(gradient is not None, f"its parameter {name} gets no gradient")


def _gradients(features: Tensor, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
    return torch.autograd.grad(features.square().sum(), parameters, allow_unused=True) if parameters else ()


def _check_stacked(encoder: Encoder, rows: tuple[Tensor, ...]) -> None:
    with torch.no_grad():
        want = encoder(rows)
        stacked = {name: torch.stack([x, x]) for name, x in encoder.named_parameters()}
        halves = tuple(x.unflatten(0, (2, -1)) for x in rows)
        try:
            mapped = vmap(lambda named, x: functional_call(encoder, named, (x,)))(stacked, halves).flatten(0, 1)
        except RuntimeError as error:
            raise Nonconformity(f"several cannot be computed at once by torch.func.vmap: {reason(error)}") from error
    require(_close(mapped, want), "several that are computed at once by torch.func.vmap give other features")


def _check_replays(encoder: Encoder, rows: tuple[Tensor, ...]) -> None:
    layout = Layout.of(encoder)

    def features(theta: Tensor, *inputs: Tensor) -> tuple[Tensor]:
        return (functional_call(encoder, layout.unflatten(theta), (inputs,)),)

    def gradient(theta: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        theta = theta.detach().requires_grad_()
        return torch.autograd.grad(features(theta, *inputs)[0].square().sum(), theta)

    theta = layout.flatten(dict(encoder.named_parameters())) if layout.names else torch.zeros(0)
    theta, others = theta.detach(), tuple(x.flip(0) for x in rows)
    for what, function in {"features": features, "gradient": gradient}.items():
        if what == "gradient" and not (encoder.light and layout.names):
            continue
        try:
            replayed = capture(function, theta, *rows)(theta, *others)
        except RuntimeError as error:
            hint = "; one that is not light need not replay it" if what == "gradient" else ""
            raise Nonconformity(f"its {what} cannot be replayed{hint}: {reason(error)}") from error
        require(_close(replayed[0], function(theta, *others)[0]), f"its {what} is another one when it is replayed")
