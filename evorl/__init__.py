"""evorl: an experiment suite for evolutionary reinforcement learning.

What ``import evorl`` offers is in `evorl.api`, which is imported when it is first used; ``__init__.pyi`` has its types.
"""

import logging as _logging
from importlib import import_module as _import_module
from typing import Any as _Any

from evorl.util.text import PrintableRecords as _PrintableRecords

__version__ = "0.1.0"
_logging.getLogger(__name__).addFilter(_PrintableRecords())

_HOMES = {
    "run": "evorl.run",  # the module of the command, which can be called
    "sweep": "evorl.api.runs",
    "resume": "evorl.api.runs",
    "load": "evorl.api.runs",
    "RunResult": "evorl.api.runs",
    "Policy": "evorl.api.policy",
    "experiment": "evorl.api.experiments",
}


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evorl' has no attribute {name!r}")
    module = _import_module(_HOMES[name])
    return module if module.__name__ == f"evorl.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
