"""Everything of Hydra that is not public API: the one file to look at when Hydra changes.

evorl composes configs by itself, because ``@hydra.main`` composes before any check can run, reports errors as
tracebacks, and reads every file again for each job of a sweep. Below a group any key may be set (`_CachingLoader`):
which ones exist is decided in `evorl.cli.refusals`. Verified for hydra-core 1.3.2 to 1.3.8; ``pyproject.toml`` allows
1.3 alone, and ``tests/cli/test_hydra_internals.py`` checks each private name that is used here.
"""

from __future__ import annotations

import argparse
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self, cast

import yaml
from hydra import conf, version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.hydra import Hydra as Hydra
from hydra._internal.utils import create_config_search_path
from hydra._internal.utils import get_args_parser as get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.default_element import ConfigDefault as ConfigDefault
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType as ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import split_key as split_key
from omegaconf.errors import OmegaConfBaseException

from evorl.util.errors import BadRequest

COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, ValueError, TypeError)
"""What Hydra raises for words that it cannot compose."""


_COMPOSING = threading.RLock()  # Hydra and the config that ${hydra:...} refers to are global


class HasConfigLoader(Protocol):
    """Hydra, or the context that it passes to its plugins."""

    config_loader: ConfigLoader


@contextmanager
def open_composer(
    path: Path, extra: str | None = None, last: Mapping[str, Path] = MappingProxyType({})
) -> Iterator[Hydra]:
    """Open Hydra over the config folder ``path``; only one can be open in a process, and other threads wait.

    ``extra`` is a second folder that is searched first, like Hydra's ``--config-dir``; it must exist. ``last`` has
    folders that are searched last, by the names of who provides them.
    """
    version.setbase("1.3")
    # evorl's launcher file has the name of the plugin's own file, which Hydra rightly takes for its schema
    warnings.filterwarnings("ignore", r"\s*'hydra/launcher/ray' is validated against ConfigStore schema")
    search = create_config_search_path(str(path.absolute()))
    if extra is not None:
        search.prepend("command-line", f"file://{Path(extra).absolute()}", SearchPathQuery(provider="schema"))
    for provider, folder in last.items():
        search.prepend(provider, f"file://{folder}", SearchPathQuery(provider="schema"))  # which stays last
    with _COMPOSING:
        GlobalHydra.instance().clear()
        try:
            hydra = Hydra("evorl", _CachingLoader(search))
            GlobalHydra.instance().initialize(hydra)
            yield hydra
        finally:
            GlobalHydra.instance().clear()


def show_info(hydra: Hydra, args: argparse.Namespace, parser: argparse.ArgumentParser, name: str) -> None:
    """Let Hydra answer --cfg, --info, --hydra-help and --shell-completion."""
    if args.hydra_help:
        hydra.hydra_help(config_name=name, args_parser=parser, args=args)
    elif args.shell_completion:
        hydra.shell_completion(config_name=name, overrides=args.overrides)
    elif args.cfg:
        hydra.show_cfg(name, args.overrides, cfg_type=args.cfg, package=args.package, resolve=args.resolve)
    else:
        hydra.show_info(args.info, config_name=name, overrides=args.overrides)


def multirun(hydra: Hydra, name: str, task: TaskFunction, words: Sequence[str]) -> None:
    """Let Hydra's sweeper and launcher run the jobs of these words.

    It puts a handler of its own, of the standard output of that time, in place of those of the root logger, and has
    `logging.config` close all that `logging` knows of. This process may be a notebook, or a program with a log of its
    own, so `logging` does not know of its handlers meanwhile, and they return at the end.
    """
    root, known = logging.getLogger(), logging._handlerList  # type: ignore[attr-defined]
    handlers, level, all_handlers = root.handlers[:], root.level, known[:]
    known.clear()
    try:
        hydra.multirun(name, task, list(words))
    finally:
        root.handlers[:] = handlers
        known[:0] = [handler for handler in all_handlers if handler() is not None]
        root.setLevel(level)


@cache
def known_logs(kind: str) -> list[Any]:
    """The configs of ``hydra_logging`` or ``job_logging`` that come with Hydra and write no file.

    They are read from Hydra's own folder: a config folder may have files of the same names.
    """
    files = sorted((Path(conf.__path__[0]) / "hydra" / kind).glob("*.yaml"))
    return [config for config in map(yaml.safe_load, map(Path.read_text, files)) if "FileHandler" not in str(config)]


def repository_of(hydra: Hydra) -> ConfigRepository:
    """The repository that reads the config files. The loader's own methods would copy its whole cache first."""
    return cast(ConfigLoaderImpl, hydra.config_loader).repository


def compose_choices(hydra: Hydra, name: str, words: Sequence[str]) -> DictConfig:
    """Compose the config of one job from choices alone, once for the same words. Raises `COMPOSITION_ERRORS`.

    The caller must not change the result.
    """
    known = cast(_CachingLoader, hydra.config_loader).of_choices
    key = (name, *words)
    if key not in known:
        known[key] = hydra.compose_config(name, list(words), RunMode.RUN, with_log_configuration=False)
    return known[key]


def parse_override(text: str, hydra: HasConfigLoader | None = None) -> Override:
    """Parse one KEY=VALUE word; ``hydra`` lets ``glob(*)`` list the choices of a group. Raises HydraException."""
    overrides: list[Override] = OverridesParser.create(hydra.config_loader if hydra else None).parse_overrides([text])
    return overrides[0]


class _CachingLoader(ConfigLoaderImpl):
    """A loader that reads each file and merges the same files once; a sweep composes for every job.

    Words may set any key below a group (not of Hydra's own).
    """

    def __init__(self, search: ConfigSearchPath) -> None:
        super().__init__(search)
        self.repository: ConfigRepository = _CachingRepository(search)
        self.merged: dict[str, DictConfig] = {}
        self.of_choices: dict[tuple[str, ...], DictConfig] = {}

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        files = repr((defaults, repo.get_sources()))
        if files not in self.merged:
            merged = super()._compose_config_from_defaults_list(defaults, deepcopy(repo))
            if merged.hydra.overrides != {"hydra": [], "task": []}:  # Hydra adds the words, of which trust=[...] is one
                raise BadRequest("has the words of the command line; no config file gives any", "hydra.overrides")
            for group in set(map(str, merged)) - {"hydra"}:
                if isinstance(node := merged._get_node(group), DictConfig):
                    OmegaConf.set_struct(node, False)  # Hydra then closes the config, but not what is open by itself
            self.merged[files] = merged
        return deepcopy(self.merged[files])  # the caller writes the command line's values into it


class _CachingRepository(ConfigRepository):
    """A repository that looks for each file and lists each group once, and reads a file again only if it has changed.

    A configuration of a file that another repository of this process has read is shared with it.
    """

    read: ClassVar[dict[tuple[str, str, str], tuple[tuple[int, int], ConfigResult]]] = {}
    """Configs by provider, folder and name, each with the time of change and the size of its file."""

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self.configs: dict[str, ConfigResult | None] = {}
        self.options: dict[tuple[str, ObjectType | None], list[str]] = {}
        self.sources_found: dict[tuple[str, ObjectType | None], ConfigSource | None] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self.configs:
            try:
                self.configs[config_path] = self._read(config_path)
            except yaml.YAMLError as error:
                raise BadRequest(" ".join(str(error).split())) from None
        return self.configs[config_path]

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        wanted = group_name, results_filter
        if wanted not in self.options:
            self.options[wanted] = super().get_group_options(group_name, results_filter)
        return self.options[wanted]

    def _read(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return super().load_config(config_path)
        key = source.provider, source.path, config_path
        status = Path(source.path, f"{config_path.removesuffix('.yaml')}.yaml").stat()
        signature = status.st_mtime_ns, status.st_size
        if key not in self.read or self.read[key][0] != signature:
            config = super().load_config(config_path)
            assert config is not None
            self.read[key] = signature, config
        return self.read[key][1]

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> ConfigSource | None:
        wanted = config_path, object_type
        if wanted not in self.sources_found:
            self.sources_found[wanted] = super()._find_object_source(config_path, object_type)
        return self.sources_found[wanted]

    def __deepcopy__(self, memo: object) -> Self:
        """Share the caches with the copy that each composition makes; the composition may change its sources."""
        return copy(self)
