"""Find an environment by its id, or say in one line why it cannot be made.

An id is a module (``mpe2.simple_spread_v3``), which has `parallel_env` or `env` as PettingZoo's own modules do, or a
function or class of a module (``my_games.soccer:make``).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from evorl.util import command
from evorl.util.errors import BadRequest, nearest, reason

Interface = Literal["parallel", "aec"]
Scalar = bool | int | float | str | None
FAMILIES = ("pettingzoo.atari", "pettingzoo.butterfly", "pettingzoo.classic", "pettingzoo.sisl", "mpe2")
"""Packages whose modules are environments."""
LIBRARIES = ("pettingzoo", "mpe2")
"""Root modules that the extra pettingzoo installs, which need no trust."""
ATARI = "pettingzoo.atari."
_ENTRIES: Mapping[Interface, str] = {"parallel": "parallel_env", "aec": "env"}


def make(
    id: str, kwargs: Mapping[str, Scalar], wrappers: Sequence[str], interface: Interface | None, **extra: Any
) -> Any:
    """Return the environment of an id within its wrappers, the first one innermost. Raises `BadRequest`."""
    root = id.partition(":")[0].partition(".")[0]
    needed, of = {"pettingzoo", root}.intersection(LIBRARIES), "pettingzoo"
    if id.startswith(ATARI):
        needed, of = needed | {"multi_agent_ale_py"}, "pettingzoo-atari"
    if any(find_spec(name) is None for name in needed):
        raise BadRequest(f"{id} needs more than is installed: {command.install(of)}", "id")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PettingZoo's modules, for its ids of 1.27
        return _within(_made(id, {**_roms(id), **kwargs, **extra}, interface), id, wrappers)


def _roms(id: str) -> Mapping[str, Scalar]:
    """Where Atari games of several players are: their library brings none, and ale_py has them."""
    spec = find_spec("ale_py") if id.startswith(ATARI) else None
    return {"auto_rom_install_path": str(Path(spec.origin).parent / "roms")} if spec and spec.origin else {}


def _made(id: str, kwargs: Mapping[str, Any], interface: Interface | None) -> Any:
    entry = _entry(id, interface)
    try:
        return entry(**kwargs)
    except ImportError as error:
        raise BadRequest(f"{id} does not run here: {reason(error)}", "id") from error
    except Exception as error:
        key = "kwargs" if kwargs or "argument" in str(error) else "id"
        raise BadRequest(f"{id} cannot be made: {reason(error)}", key) from error


def _within(env: Any, id: str, wrappers: Sequence[str]) -> Any:
    for name in wrappers:
        wrap = _member(name, "wrappers")
        try:
            env = wrap(env)
        except Exception as error:
            raise BadRequest(f"{name} cannot wrap {id}: {reason(error)}", "wrappers") from error
    return env


def _entry(id: str, interface: Interface | None) -> Callable[..., Any]:
    """What makes the environment of an id."""
    if ":" in id:
        return _member(id, "id")
    try:
        module = importlib.import_module(id)
    except Exception as error:  # importing runs the module, which may raise anything
        absent = isinstance(error, ModuleNotFoundError) and f"{id}.".startswith(f"{error.name}.")
        raise BadRequest(
            f"there is no {id}{_meant(id)}" if absent else f"{id} does not run here: {reason(error)}", "id"
        ) from error
    wanted = [_ENTRIES[interface]] if interface else list(_ENTRIES.values())
    made: Callable[..., Any] | None = next((x for name in wanted if callable(x := getattr(module, name, None))), None)
    if made is not None:
        return made
    if interface and any(hasattr(module, name) for name in _ENTRIES.values()):
        raise BadRequest(f"{id} has no {wanted[0]}", "interface")
    raise BadRequest(f"{id} has neither parallel_env nor env{_meant(id)}", "id")


def _member(name: str, key: str) -> Callable[..., Any]:
    """The function or class ``module:name``."""
    module, _, member = name.partition(":")
    try:
        made: Callable[..., Any] | None = getattr(importlib.import_module(module), member, None)
    except Exception as error:
        raise BadRequest(f"{name} does not run here: {reason(error)}", key) from error
    if not callable(made):
        choices = [each for each, x in vars(importlib.import_module(module)).items() if callable(x)]
        raise BadRequest(f"{module} has no {member or 'name behind the colon'}{nearest(member, choices)}", key)
    return made


def known_as(name: str) -> str:
    """The id of the libraries whose last part is this name; an empty string if there is none."""
    return next((known for known in _known() if known.rpartition(".")[2] == name), "")


def _meant(id: str) -> str:
    alike = known_as(id.rpartition(".")[2])
    return f"; did you mean {alike}?" if alike else nearest(id, _known())


def _known() -> Iterator[str]:
    """The ids of the libraries."""
    for family in FAMILIES:
        try:
            spec = find_spec(family)
        except ModuleNotFoundError:
            continue
        places = None if spec is None else spec.submodule_search_locations
        for module in pkgutil.iter_modules(places or []):
            if re.search(r"_v\d+$", module.name):
                yield f"{family}.{module.name}"
