"""The launcher and the sweeper of a command, checked before Hydra makes them: Hydra's own, Ray's or another plugin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Annotated, Any, cast

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from msgspec import Meta
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evorl.cli.config import task_words
from evorl.cli.overrides import first_line, parse
from evorl.cli.refusals import given_keys
from evorl.cli.targets import trusted
from evorl.util.errors import BadRequest, nearest
from evorl.util.typed import typed
from evorl.util.types import Count, Natural, NonNegative

RAYS = "hydra_plugins.hydra_ray_launcher"


@dataclass(frozen=True, kw_only=True)
class RayInit:
    """The keys of ``ray.init`` in ``conf/hydra/launcher/ray.yaml``; the command line may give others, too."""

    address: str | None = None
    num_cpus: Natural | None = None
    num_gpus: Natural | None = None
    object_store_memory: Count | None = None
    include_dashboard: bool = False


@dataclass(frozen=True, kw_only=True)
class RayRemote:
    """The keys of ``ray.remote`` in the same file, for each job."""

    num_cpus: NonNegative = 1
    num_gpus: NonNegative = 0
    max_retries: Annotated[int, Meta(ge=-1)] = 3
    """-1 retries without limit."""


def check(base: DictConfig) -> None:
    """Raise `BadRequest` for errors of plugins that Hydra and its launcher would only find in the middle."""
    if base.hydra.callbacks:
        raise BadRequest("are code that a config would run; evorl calls none", "hydra.callbacks")
    target = str(base.hydra.launcher.get("_target_"))
    rays = target.startswith(f"{RAYS}.")
    if rays and find_spec(RAYS) is None:
        raise BadRequest("ray needs a package more: pip install 'evorl-suite[ray-launcher]'", "hydra/launcher")
    for part, kind in (("launcher", Launcher), ("sweeper", Sweeper)):
        target, known = str(base.hydra[part].get("_target_")), Plugins.instance().discover(kind)
        names = [f"{launcher.__module__}.{launcher.__name__}" for launcher in known]
        if target not in names:
            raise BadRequest(f"{target} is no {part} that Hydra knows{nearest(target, names)}", f"hydra.{part}")
        _check_inside(base, part)
    if rays:
        for name, keys in (("init", RayInit), ("remote", RayRemote)):
            options = OmegaConf.to_container(base.hydra.launcher.ray[name], resolve=True)
            assert isinstance(options, dict)
            ray_keys, place = {field.name for field in fields(keys)}, f"hydra.launcher.ray.{name}"
            typed({str(key): x for key, x in options.items() if key in ray_keys}, keys, place)
            for key in map(str, options.keys() - ray_keys):  # such as runtime_env, which can name code
                if not any(f"{given}.".startswith(f"{place}.{key}.") for given in given_keys(base)):
                    raise BadRequest("is taken from the command line only", f"{place}.{key}")


def _check_inside(base: DictConfig, part: str) -> None:
    """Raise `BadRequest` for code inside a launcher or sweeper, which Hydra would run, unless it is trusted."""
    from evorl.jobs.search import is_search

    try:
        inside = cast(dict[str, Any], OmegaConf.to_container(base.hydra[part], resolve=True))
    except OmegaConfBaseException as error:
        raise BadRequest(first_line(error), str(error.full_key or f"hydra.{part}")) from None
    del inside["_target_"]
    if part == "sweeper" and is_search(base):
        inside.pop("evolver", None)  # which evorl makes
    for key, target in _targets(inside, f"hydra.{part}"):
        root = target.partition(".")[0]
        if root not in trusted(parse(task_words(base))):
            raise BadRequest(f"Hydra would run {target}; to allow it add 'trust=[{root}]' to the command line", key)


def _targets(tree: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every ``_target_`` in a tree, with its key."""
    if isinstance(tree, dict):
        if "_target_" in tree:
            yield f"{key}._target_", str(tree["_target_"])
        for name, child in tree.items():
            yield from _targets(child, f"{key}.{name}")
    elif isinstance(tree, list):
        for number, child in enumerate(tree):
            yield from _targets(child, f"{key}[{number}]")


def start_ray(base: DictConfig) -> None:
    """Start Ray for a launcher; the launcher's own start would leave SIGTERM to Ray's handler.

    Raises `BadRequest` if Ray does not start or is not reachable.
    """
    if str(base.hydra.launcher.get("_target_")) == f"{RAYS}.ray_launcher.RayLauncher":
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # equal lines of two jobs are not repetitions
        from evorl.cluster.ray.session import init_ray

        words = cast(dict[str, Any], OmegaConf.to_container(base.hydra.launcher.ray.init, resolve=True))
        init_ray("hydra.launcher.ray.init", **words)
