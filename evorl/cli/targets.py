"""The dataclasses that config files name as ``_target_``, and the packages that they may come from."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import is_dataclass
from importlib import import_module

from hydra.core.override_parser.types import Override

from evorl.util import plugins
from evorl.util.errors import BadRequest

COMMAND = "mdp.command"


def trusted(words: Sequence[Override]) -> tuple[str, ...]:
    """Return the root modules and commands that a command line trusts (``trust=[...]``)."""
    value = next((word.value() for word in reversed(words) if word.key_or_group == "trust"), [])
    return tuple(str(name) for name in value) if isinstance(value, list) else (str(value),)


def typed_commands(words: Sequence[Override]) -> tuple[str, ...]:
    """Return the commands of games that stand on a command line themselves."""
    return tuple(str(word.value()) for word in words if word.key_or_group == COMMAND and not word.is_sweep_override())


class Untrusted(BadRequest):
    """Names code outside evorl that is of no plugin and that the command line does not trust."""

    def __init__(self, message: str, key: str, root: str) -> None:
        super().__init__(message, key)
        self.root = root


def import_class(path: str, base: type, key: str, trust: Sequence[str]) -> type:
    """Import the dataclass at a dotted path; it must be a subclass of ``base``. Raises `BadRequest` at ``key``."""
    root, (module, _, name) = path.partition(".")[0], path.rpartition(".")
    if ":" in path:
        raise BadRequest(f"a class has a dot before its name here: {path.replace(':', '.')}", key)
    if root not in ("evorl", *trust, *plugins.installed()):
        raise Untrusted(f"{path} is outside evorl; to run its code add 'trust=[{root}]' to the command line", key, root)
    if not module or not all(part.isidentifier() for part in path.split(".")):
        raise BadRequest(f"{path} is no MODULE.CLASS", key)
    by = f"plugin {root}: " if root in plugins.installed() else ""
    try:
        kind = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):
            raise BadRequest(f"{path} needs {error.name}, which is not installed", key) from error
        raise BadRequest(f"{by}there is no module {module}", key) from None
    if not (inspect.isclass(kind) and issubclass(kind, base) and is_dataclass(kind)) or inspect.isabstract(kind):
        raise BadRequest(f"{by}{path} is no {base.__name__} dataclass", key)
    return kind
