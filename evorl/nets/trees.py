"""Trees of tensors: the nested arguments and results of captured functions.

A tree is a tensor, None, a tuple or named tuple of trees, or a dictionary of them. Torch has trees as well: to flatten
the arguments of a gradient step takes them 60 us, and these 10, where a decision takes as long as that in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from torch import Tensor

Tree = Any
"""A recursive type would need a cast wherever a tree becomes a named tuple again."""
T = TypeVar("T")
LEAF: Any = object()
"""Stands for a tensor in an `outline`."""


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in order."""
    return flatten((tree,))[0]


def flatten(trees: Iterable[Tree]) -> tuple[list[Tensor], list[Any]]:
    """The tensors of trees, in order, and their form: how they nest, and each one's shape and dtype."""
    tensors, form = list[Tensor](), list[Any]()
    _flatten(trees, tensors, form)
    return tensors, form


def _flatten(trees: Iterable[Tree], tensors: list[Tensor], form: list[Any]) -> None:
    for x in trees:
        if x is None:
            form.append(None)
        elif isinstance(x, tuple):
            form.append(len(x))
            _flatten(x, tensors, form)
        elif isinstance(x, dict):
            form.append(tuple(x))
            _flatten(x.values(), tensors, form)
        else:  # last, since the test for a tensor is slow
            tensors.append(x)
            form.append((x.shape, x.dtype))


def outline(tree: T) -> T:
    """The tree without its tensors."""
    return mapped(lambda _: LEAF, tree)


def rebuild(outline: T, tensors: Iterator[Any]) -> T:
    """The tree, other than a tensor, with this outline and these tensors."""
    tree: Any = outline
    if isinstance(tree, dict):
        made: Any = {name: next(tensors) if x is LEAF else rebuild(x, tensors) for name, x in tree.items()}
    else:
        made = _like(tree, [next(tensors) if x is LEAF else None if x is None else rebuild(x, tensors) for x in tree])
    return cast(T, made)


def mapped(function: Callable[[Any], Any], tree: T) -> T:
    """The tree with the function of each of its tensors."""
    x: Any = tree
    if isinstance(x, dict):
        made: Any = {name: mapped(function, part) for name, part in x.items()}
    elif isinstance(x, tuple):
        made = _like(x, [mapped(function, part) for part in x])
    else:
        made = None if x is None else function(x)
    return cast(T, made)


def _like(tree: Any, parts: list[Any]) -> Any:
    """A tuple, or named tuple, of the parts."""
    return tree._make(parts) if hasattr(tree, "_make") else tuple(parts)


def at(tree: T, index: int) -> T:
    """The tree of what its tensors hold at this place of their first axis."""
    return mapped(lambda x: x[index], tree)


def describe(tree: Tree) -> Any:
    """A tree without its numbers, as plain data: lists that begin with the name of their class, and of a tensor an
    empty name, its dtype and its shape."""
    if isinstance(tree, dict):
        return {name: describe(x) for name, x in tree.items()}
    if isinstance(tree, tuple):
        return [_name(type(tree)), *map(describe, tree)]
    return None if tree is None else ["", str(tree.dtype).removeprefix("torch."), [*tree.shape]]


def described(plain: Any, tensor: Callable[[str, list[int]], Tensor]) -> Tree:
    """The tree that was described in a process which knew the same classes as this one.

    ``tensor``: gives the next one, of this dtype and shape.
    """
    if isinstance(plain, dict):
        return {name: described(x, tensor) for name, x in plain.items()}
    if plain is None:
        return None
    name, *parts = plain
    if not name:
        return tensor(*parts)
    kind: Any = next((kind for kind in tuple.__subclasses__() if _name(kind) == name), tuple)
    return getattr(kind, "_make", kind)([described(x, tensor) for x in parts])


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
