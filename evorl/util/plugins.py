"""Plugins: installed packages that add choices to evorl (docs/plugins.md). They are found without importing them.

A package is a plugin if it has an entry point in the group ``evorl.plugins``, whose value is its root module.
Installing a package allows its code to run, so evorl imports it once a choice of it is used. What is beside its root
module is data: ``conf/``, searched like evorl's own config files, and ``metrics.yaml``.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import invalidate_caches, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

GROUP = "evorl.plugins"
"""The group of entry points that name plugins."""
WORLDS = ("gymnasium", "ale_py")
"""Root modules that may register a world without ``trust``."""
Places = tuple[tuple[str, int], ...]


class Plugin(NamedTuple):
    """An installed plugin."""

    root: str
    """Its root module, by which it is called."""
    version: str
    """Of the distribution that it is part of."""
    folder: Path | None
    """The folder of its root module; None if that is not there."""

    @property
    def conf(self) -> Path | None:
        """Its folder of config files; None if it has none."""
        return None if self.folder is None or not (self.folder / "conf").is_dir() else self.folder / "conf"


def installed() -> Mapping[str, Plugin]:
    """Return the plugins that this Python finds, by root module, in alphabetical order."""
    return _installed(_path())


def entries(group: str) -> Mapping[str, Sequence[metadata.EntryPoint]]:
    """Return the entry points in a group, such as ``evorl.samplers``, that lead into a plugin, by their names.

    A name has several if packages that lead to different places share it.
    """
    return _entries(group, _path())


def versions(roots: Iterable[str]) -> dict[str, str | None]:
    """Return the version of each root module that is a plugin's; None for others."""
    return {root: installed()[root].version if root in installed() else None for root in roots}


def blamed(error: BaseException, text: str = "") -> str:
    """Return ``plugin NAME: `` if an error comes from a plugin, or passed through its code; else an empty string.

    ``text`` is further text about it: the traceback of another process.
    """
    if not installed():
        return ""
    places = [*_places(error), *(line.strip() for line in f"{error}\n{text}".splitlines())]
    for place in reversed(places):
        for plugin in installed().values():
            if plugin.folder is not None and f"{plugin.folder}/" in place:
                return f"plugin {plugin.root}: "
    return ""


def _places(error: BaseException) -> Iterator[str]:
    """The files that an error passed through, the innermost last; that of a syntax error is itself the place."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    for each in causes:
        yield from (frame.filename for frame in traceback.extract_tb(each.__traceback__))
        if isinstance(each, SyntaxError) and each.filename:
            yield each.filename


def _path() -> Places:
    """Where Python looks, and when each place last changed: so what is installed later is found, too."""
    return tuple(
        (place, os.stat(place or ".").st_mtime_ns if os.path.exists(place or ".") else 0) for place in sys.path
    )


@cache
def _select(path: Places) -> Callable[..., metadata.EntryPoints]:
    """What selects among all entry points. To read the files of all distributions takes most of the time that plugins
    cost a start."""
    invalidate_caches()
    return metadata.entry_points().select


@cache
def _installed(path: Places) -> Mapping[str, Plugin]:
    roots: dict[str, str] = {}
    for point in _select(path)(group=GROUP):
        root = _root(point)
        if root.isidentifier() and root != "evorl":
            roots.setdefault(root, "unknown" if point.dist is None else point.dist.version)
    return {root: Plugin(root, roots[root], _folder(root)) for root in sorted(roots)}


@cache
def _entries(group: str, path: Places) -> Mapping[str, Sequence[metadata.EntryPoint]]:
    named: dict[str, dict[str, metadata.EntryPoint]] = {}
    for point in _select(path)(group=group):
        if _root(point) in _installed(path):
            named.setdefault(point.name, {})[point.value] = point
    return {name: [*points.values()] for name, points in named.items()}


def _root(point: metadata.EntryPoint) -> str:
    return point.value.partition(":")[0].partition(".")[0].strip()


def _folder(root: str) -> Path | None:
    """The folder of a root module, which is not imported for it."""
    try:
        spec: Any = find_spec(root)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).absolute()
