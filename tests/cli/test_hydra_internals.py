"""The private parts of Hydra that evorl uses: which versions have them, and that one file alone reaches for them."""

from __future__ import annotations

import ast
import inspect
import tomllib
from importlib import import_module, metadata

import pytest
from harness import ROOT

SIGNATURES = {
    "hydra._internal.hydra.Hydra.__init__": ("self", "task_name", "config_loader"),
    "hydra._internal.hydra.Hydra.compose_config": (
        *("self", "config_name", "overrides", "run_mode", "with_log_configuration", "from_shell"),
        "validate_sweep_overrides",
    ),
    "hydra._internal.hydra.Hydra.hydra_help": ("self", "config_name", "args_parser", "args"),
    "hydra._internal.hydra.Hydra.shell_completion": ("self", "config_name", "overrides"),
    "hydra._internal.hydra.Hydra.show_cfg": ("self", "config_name", "overrides", "cfg_type", "package", "resolve"),
    "hydra._internal.hydra.Hydra.show_info": ("self", "info", "config_name", "overrides", "run_mode"),
    "hydra._internal.utils.get_args_parser": (),
    "hydra._internal.utils.create_config_search_path": ("search_path_dir",),
    "hydra._internal.config_loader_impl.ConfigLoaderImpl.__init__": ("self", "config_search_path"),
    "hydra._internal.config_loader_impl.ConfigLoaderImpl._compose_config_from_defaults_list": (
        *("self", "defaults", "repo"),
    ),
    "hydra._internal.config_repository.ConfigRepository.initialize_sources": ("self", "config_search_path"),
    "hydra._internal.config_repository.ConfigRepository.load_config": ("self", "config_path"),
    "hydra._internal.config_repository.ConfigRepository._find_object_source": ("self", "config_path", "object_type"),
    "hydra._internal.config_repository.ConfigRepository.get_group_options": ("self", "group_name", "results_filter"),
    "hydra._internal.config_repository.IConfigRepository.get_sources": ("self",),
    "omegaconf._utils.split_key": ("key",),
}
"""Parameters of each private function and method that evorl calls or overrides."""
PRIVATE = ("hydra._", "omegaconf._")


def test_the_versions_are_the_ones_that_pyproject_allows() -> None:
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert "hydra-core>=1.3.2,<1.4" in allowed and "omegaconf>=2.3,<2.4" in allowed
    assert metadata.version("hydra-core").startswith("1.3.") and metadata.version("omegaconf").startswith("2.3.")


@pytest.mark.parametrize("path", SIGNATURES)
def test_every_private_name_has_the_expected_parameters(path: str) -> None:
    parts, names = path.split("."), []
    while parts:
        try:
            found = import_module(".".join(parts))
            break
        except ModuleNotFoundError:
            names.insert(0, parts.pop())
    for name in names:
        found = getattr(found, name)
    assert tuple(inspect.signature(found).parameters) == SIGNATURES[path]


def test_the_loader_keeps_its_repository_where_evorl_puts_its_own() -> None:
    source = inspect.getsource(import_module("hydra._internal.config_loader_impl").ConfigLoaderImpl.__init__)
    assert "self.repository = ConfigRepository(" in source


def private_imports(text: str) -> set[str]:
    if not any(package in text for package in PRIVATE):  # to parse all files takes seconds
        return set()
    nodes = [*ast.walk(ast.parse(text))]
    modules = {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}
    modules |= {one.name for n in nodes if isinstance(n, ast.Import) for one in n.names}
    return {name for name in modules if name.startswith(PRIVATE)}


def test_one_file_alone_imports_them() -> None:
    files = [*(ROOT / "evorl").rglob("*.py"), *(ROOT / "hydra_plugins").rglob("*.py")]
    users = {path.relative_to(ROOT).as_posix() for path in files if private_imports(path.read_text())}
    assert users == {"evorl/cli/hydra_internals.py"}
    assert private_imports((ROOT / "evorl/cli/hydra_internals.py").read_text()) == {
        path.rpartition(".")[0].removesuffix(".Hydra").removesuffix(".ConfigLoaderImpl")
        .removesuffix(".ConfigRepository").removesuffix(".IConfigRepository")
        for path in SIGNATURES
    }  # fmt: skip
