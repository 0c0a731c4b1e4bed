"""Kinds that a key chooses by name: those of evorl, and those that entry points of plugins name (docs/plugins.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Generic, TypeVar, cast

from evorl.util import plugins
from evorl.util.errors import BadRequest, nearest
from evorl.util.typed import typed

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class NoKeys:
    """The options of a kind without any."""


@dataclass(frozen=True)
class Kinds(Generic[T]):
    """The table of the classes that a key chooses from."""

    base: type
    """What each of them derives from."""
    own: Mapping[str, type[T]]
    """Those of evorl, by name."""
    group: str
    """The entry points by which plugins name theirs."""
    key: str
    """The key that chooses, as errors name it."""

    def of_plugins(self) -> list[str]:
        """The names that plugins add, in alphabetical order; a name of evorl keeps its meaning."""
        return sorted(plugins.entries(self.group).keys() - self.own.keys())

    def kind_of(self, name: str) -> type[T]:
        """The class of this name, which is imported if it is a plugin's. Raises `BadRequest` if that is none."""
        if name in self.own:
            return self.own[name]
        entry = self._entry(name)
        by = f"plugin {self.root_of(name)}: "
        try:
            kind = entry.load()
        except (ModuleNotFoundError, AttributeError) as error:
            raise BadRequest(f"{by}{entry.value} cannot be imported: {error}", self.key) from None
        if not (isinstance(kind, type) and issubclass(kind, self.base)):
            raise BadRequest(f"{by}{entry.value} is no {self.base.__name__}", self.key)
        return cast("type[T]", kind)

    def root_of(self, name: str) -> str:
        """The root module of the class of this name."""
        return "evorl" if name in self.own else _root(self._entry(name))

    def _entry(self, name: str) -> EntryPoint:
        """The entry point of a name that is no own one. Raises `BadRequest` if two plugins have it."""
        entries = plugins.entries(self.group)[name]
        if len(entries) > 1:
            both = " and ".join(f"plugin {root}" for root in sorted(map(_root, entries))[:2])
            raise BadRequest(f"{both} both have a choice {name!r}; uninstall one of them", self.key)
        return entries[0]

    def check_named(self, options: Mapping[str, Any], key: str) -> None:
        """Raise `BadRequest` if the options at ``key`` name what no plugin has.

        Those of a kind that is not chosen are fine: a sweep over kinds gives options to each.
        """
        if other := next((name for name in options if name not in self.of_plugins()), None):
            known = self.of_plugins()
            raise BadRequest(f"no plugin has this name{nearest(other, known)}", f"{key}.{other}")


def _root(entry: EntryPoint) -> str:
    return entry.module.partition(".")[0]


def options_of(name: str, kind: type, options: Mapping[str, Any], key: str) -> Any:
    """The options of a plugin's kind, from those at ``key``, by name. Raises `BadRequest`."""
    try:
        return typed(options.get(name, {}), kind)
    except BadRequest as error:
        raise error.under(f"{key}.{name}") from None
