"""Trees of tensors: flattened, rebuilt and sent."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from evorl.cluster.transport.connection import dumps, loads
from evorl.nets.trees import flatten, from_plain, leaves, mapped, outline, rebuild, to_plain, unbound


class Pair(NamedTuple):
    first: Tensor
    second: Tensor | None


def tree(*parts: Any) -> Any:
    """Tensors 0, 1, ... in a tree, with some that are of the caller's choice."""
    return (Pair(torch.tensor([0.0]), None), (), {"a": torch.tensor([1, 2]), "b": (torch.tensor([3.0, 4.0]),)}, *parts)


def numbers(x: Any) -> Any:
    return mapped(Tensor.tolist, x)


WHOLE = (Pair([0.0], None), (), {"a": [1, 2], "b": ([3.0, 4.0],)})


def test_tensors_come_in_order_and_go_back_to_their_places() -> None:
    assert [x.tolist() for x in leaves(tree())] == [[0.0], [1, 2], [3.0, 4.0]]
    rebuilt = rebuild(outline(tree()), iter(leaves(tree())))
    assert numbers(rebuilt) == WHOLE and type(rebuilt[0]) is Pair


def test_a_tree_is_cut_along_the_first_axis_of_all_its_tensors() -> None:
    x, y = torch.arange(6).view(3, 2), torch.arange(3)
    assert [numbers(one) for one in unbound((Pair(x, None), {"y": y}))] == [
        (Pair([0, 1], None), {"y": 0}), (Pair([2, 3], None), {"y": 1}), (Pair([4, 5], None), {"y": 2}),
    ]  # fmt: skip


def test_another_form_is_another_nesting_shape_dtype_or_name() -> None:
    x, y = torch.zeros(2), torch.zeros(2)
    trees: list[Any] = [
        (x, y), ((x, y),), ((x,), y), (x, (y,)), (x, y, None), (None, x, y), (x, y, ()), {"a": x, "b": y},
        {"b": x, "a": y}, (x, y.int()), (x, y[:1]), (x[None], y),
    ]  # fmt: skip
    forms = [str(flatten((one,))[1]) for one in trees]
    assert len(set(forms)) == len(trees)
    assert flatten(tree())[1] == flatten(tree())[1]


def test_a_tree_is_the_same_after_a_message() -> None:
    more = torch.tensor(True), torch.tensor([[0.1]], dtype=torch.bfloat16), (), None
    made = from_plain(loads(dumps(to_plain(tree(*more)))))
    assert flatten(made)[1] == flatten(tree(*more))[1]
    assert numbers(made) == numbers(tree(*more)) and type(made[0]) is Pair
