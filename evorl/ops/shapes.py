"""Shapes written as letters, checked."""

from __future__ import annotations

from torch import Tensor


def check_shapes(**named: tuple[Tensor, str]) -> None:
    """Check that a letter means one size throughout: ``check_shapes(reward=(reward, "T B ..."), done=(done, "T B"))``.

    ``...`` stands for whatever axes remain, the same wherever it is written. Raises ValueError naming the argument.
    """
    sizes: dict[str, object] = {}
    for name, (tensor, letters) in named.items():
        axes = letters.split()
        shape: list[object] = list(tensor.shape)
        if axes[-1] == "...":
            shape[len(axes) - 1 :] = [shape[len(axes) - 1 :]]
        if len(shape) != len(axes) or any(sizes.setdefault(*pair) != pair[1] for pair in zip(axes, shape, strict=True)):
            known = "".join(f", {axis} = {size}" for axis, size in sizes.items())
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [{', '.join(axes)}]{known}")
