"""Trees of tensors: the nested arguments and results of captured functions.

A tree is a tensor, None, a tuple or named tuple of trees, or a dictionary of them. Torch has trees as well: to flatten
the arguments of a gradient step takes them 60 us, and these 10, where a decision takes as long as that in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

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
        if type(x) is Tensor or not (x is None or isinstance(x, (tuple, dict))):  # the first test is the quickest
            tensors.append(x)
            form.append(x.shape)
            form.append(x.dtype)
        elif x is None:
            form.append(None)
        elif isinstance(x, tuple):
            form.append(len(x))
            _flatten(x, tensors, form)
        else:
            form.append(tuple(x))
            _flatten(x.values(), tensors, form)


def outline(tree: T) -> T:
    """The tree without its tensors."""
    return mapped(lambda _: LEAF, tree)


def rebuild(outline: T, tensors: Iterator[Any]) -> T:
    """The tree, other than a tensor, with this outline and these tensors."""
    tree: Any = outline
    made: Any
    if isinstance(tree, dict):
        made = {name: next(tensors) if x is LEAF else rebuild(x, tensors) for name, x in tree.items()}
    else:
        parts = [next(tensors) if x is LEAF else None if x is None else rebuild(x, tensors) for x in tree]
        made = tuple(parts) if type(tree) is tuple else tree._make(parts)
    whole: T = made
    return whole


def mapped(function: Callable[[Any], Any], tree: T) -> T:
    """The tree with the function of each of its tensors."""
    x: Any = tree
    made: Any = None
    kind: Any = type(x)
    if isinstance(x, tuple):
        parts = [mapped(function, part) for part in x]
        made = tuple(parts) if kind is tuple else kind._make(parts)
    elif isinstance(x, dict):
        made = {name: mapped(function, part) for name, part in x.items()}
    elif x is not None:
        made = function(x)
    whole: T = made
    return whole


def unbound(tree: T) -> Iterator[T]:
    """The trees of what its tensors hold at each place of their first axis."""
    form = outline(tree)
    return (rebuild(form, iter(parts)) for parts in zip(*(x.unbind() for x in leaves(tree)), strict=True))


def to_plain(tree: Tree) -> Any:
    """A tree for a message: its tensors in plain data, where a list begins with the name of the tuple's class."""
    if isinstance(tree, dict):
        return {name: to_plain(x) for name, x in tree.items()}
    if isinstance(tree, tuple):
        return [_name(type(tree)), *map(to_plain, tree)]
    return tree


def from_plain(plain: Any) -> Tree:
    """The tree that was given to `to_plain` in a process which knew the same classes as this one."""
    if isinstance(plain, dict):
        return {name: from_plain(x) for name, x in plain.items()}
    if not isinstance(plain, list):
        return plain
    name, *parts = plain
    kind: Any = next((kind for kind in tuple.__subclasses__() if _name(kind) == name), tuple)
    return getattr(kind, "_make", kind)([from_plain(x) for x in parts])


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
