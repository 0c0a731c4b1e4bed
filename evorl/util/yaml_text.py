"""YAML as data, from a file that somebody else may have written: without aliases, and with bounds."""

from __future__ import annotations

from typing import Any

import yaml

NODES = 100_000
"""Most keys and values of a document."""
DEPTH = 100
"""Most levels of a document."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(content: bytes) -> Any:
    """Return a document as plain data; nothing in it is executed. Raises ValueError if it is not valid.

    Aliases are refused, since a few of them stand for any amount of data, and evorl writes none.
    """
    try:
        _check(content)
        loader = _Loader(content)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        first = " ".join(str(error).split())
        raise ValueError(f"no valid YAML: {first:.200}") from None


def _check(content: bytes) -> None:
    """Raise ValueError for a document with aliases or beyond the bounds; it is read as a stream of events."""
    nodes = depth = 0
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"aliases are refused (line {event.start_mark.line + 1})")
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if nodes > NODES or depth > DEPTH:
            raise ValueError(f"more than {NODES if nodes > NODES else DEPTH} {'nodes' if nodes > NODES else 'levels'}")
