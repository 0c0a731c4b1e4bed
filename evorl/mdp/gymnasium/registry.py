"""Look up a gymnasium id, and explain why its environment cannot be made.

An id is a registered one (``CartPole-v1``), a registered one behind the module that registers it
(``my_envs:Grid-v0``), an environment class that is not registered (``my_envs.grid:GridWorld``), or one of EnvPool
(``envpool/Ant-v5``).
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from evorl.util import command
from evorl.util.errors import BadRequest, nearest

ENVPOOL = "envpool/"
"""Start of the ids of EnvPool's environments."""
_EXTRAS = {
    "gymnasium.envs.mujoco": ("mujoco", ("mujoco",)),
    "gymnasium.envs.box2d": ("box2d", ("Box2D", "pygame")),
    "ale_py": ("atari", ("ale_py",)),
    "evorl.mdp.atari.game": ("atari", ("ale_py",)),
}
"""Start of an entry point -> the extra of evorl that it needs, and the modules of that extra."""


def environment_spec(id: str) -> Any:
    """Return gymnasium's `EnvSpec` for an id. Raises `BadRequest`.

    Imports the module before the colon first. A registered id wins; only if the name is not registered, the
    module's class of that name is taken.
    """
    import gymnasium

    if id.startswith(ENVPOOL):
        from evorl.mdp.gymnasium.envpool import envpool_spec

        return envpool_spec(id)
    module_name, _, name = id.rpartition(":")
    module_name = module_name or ("ale_py" if name.startswith("ALE/") else "")
    module = _import(id, module_name) if module_name else None
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    if module is not None and (spec := _class_spec(id, module, name)) is not None:
        return spec
    close = nearest(name, _alike(name, list(gymnasium.registry)))
    if not module_name and re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*\.[A-Za-z_]\w*", id):  # as Python would import it
        home, _, kind = id.rpartition(".")
        close = f"; a class has a colon before its name: mdp.id={home}:{kind} 'trust=[{home.partition('.')[0]}]'"
    raise BadRequest(f"{id} is not registered with gymnasium{close}", "id")


def _alike(name: str, ids: Sequence[str]) -> list[str]:
    """The ids that are like a name without namespaces and versions, which alone make most ids alike."""

    def own(id: str) -> str:
        return re.sub(r"-v\d+\Z", "", id.rpartition("/")[2]).casefold()

    close = get_close_matches(own(name), {*map(own, ids)}, len(ids))
    return [id for id in ids if own(id) in close]


def _import(id: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except Exception as error:  # importing runs the module, which may raise anything
        raise not_runnable(id, module_name, error) from error


def _class_spec(id: str, module: ModuleType, name: str) -> Any:
    """Return an `EnvSpec` of the module's class of this name; None if ``name`` has the form of a registered id."""
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

    kinds = (gymnasium.Env, VectorEnv)
    maker = getattr(module, name, None)
    if isinstance(maker, type) and issubclass(maker, kinds):
        # `id` is module:class, which is also an entry point that gymnasium imports
        return EnvSpec(id, vector_entry_point=id) if issubclass(maker, VectorEnv) else EnvSpec(id, entry_point=id)
    if not name.isidentifier():
        return None
    if maker is not None:
        raise BadRequest(f"{id} is no class derived from gymnasium.Env", "id")
    classes = [each for each, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, kinds)]
    raise BadRequest(
        f"{id} is not registered with gymnasium, and {module.__name__} has no class {name}{nearest(name, classes)}",
        "id",
    )


def not_runnable(id: str, entry: str, error: Exception) -> BadRequest:
    """Return the error that names the extra to install; if none is missing, the cause and a newer version of the id."""
    for start, (extra, modules) in _EXTRAS.items():
        if entry.startswith(start) and any(find_spec(module) is None for module in modules):
            return BadRequest(f"{id} needs more than is installed: {command.install(extra)}", "id")
    return BadRequest(f"{id} does not run here: {error}{_newer(id)}", "id")


def _newer(id: str) -> str:
    from gymnasium.envs import registration

    name = id.rpartition(":")[2]
    if name not in registration.registry:
        return ""
    space, name, version = registration.parse_env_id(name)
    latest = registration.find_highest_version(space, name)
    return "" if latest in (None, version) else f"; did you mean {registration.get_env_id(space, name, latest)}?"


@contextmanager
def quiet_construction(spec: Any) -> Iterator[None]:
    """Silence the warnings of MuJoCo and Box2D while an environment is made.

    MuJoCo 4 warns of outdated attributes in gymnasium's models; its log file stays off afterwards too.
    Box2D's bindings warn of their own types, and crash the interpreter if warnings are errors.
    """
    set_console_log = _mujoco_console_log() if str(spec.entry_point).startswith("gymnasium.envs.mujoco") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if set_console_log is not None:
            set_console_log(False)
        try:
            yield
        finally:
            if set_console_log is not None:
                set_console_log(True)


def _mujoco_console_log() -> Callable[[bool], None] | None:
    """Return a switch of MuJoCo's console messages that also turns its log file off; None before MuJoCo 4."""
    mujoco = importlib.import_module("mujoco")

    def switch(console: bool) -> None:
        config = mujoco.MjLogConfig.get()
        config.logto_console, config.logto_file = console, False
        mujoco.MjLogConfig.set(config)

    return switch if hasattr(mujoco, "MjLogConfig") else None
