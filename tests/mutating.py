"""Mutations: evorl with one expression changed, for showing that a check can fail."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest


def mutate(patch: pytest.MonkeyPatch, function: Any, old: str, new: str) -> None:
    """Put ``new`` in place of ``old``, which occurs once in the source of the function."""
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{function.__qualname__} no longer has one {old!r}: choose another mutation"
    source, made = source.replace(old, new), dict[str, Any]()
    if "__class__" in function.__code__.co_freevars:  # of super(), which only compiles inside a class
        source = "class Mutated:\n" + textwrap.indent(source, "    ")
    code = compile(source, "mutation", "exec", __future__.annotations.compiler_flag)
    exec(code, function.__globals__, made)
    mutated = made.get(function.__name__) or vars(made["Mutated"])[function.__name__]
    patch.setattr(function, "__code__", mutated.__code__)  # whoever imported it has it too


def check_mutation(
    patch: pytest.MonkeyPatch, check: Callable[..., None], args: tuple[Any, ...], function: Any, old: str, new: str
) -> None:
    """The check fails with the mutation."""
    mutate(patch, function, old, new)
    check_notices(check, *args)


def check_notices(check: Callable[..., None], *args: Any) -> None:
    """The check fails, where it passed without a mutation."""
    with pytest.raises(AssertionError):
        check(*args)
