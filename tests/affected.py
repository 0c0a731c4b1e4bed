"""A plugin of pytest: which tests a change could affect, the nearest first (``pytest --changed-since REV``).

A test file is one step from what it imports and from the choices that its words name (``rl=sac``); a module is one
step from what it imports. A test file that has itself changed is at distance 0. All that no change reaches is left out.
"""

from __future__ import annotations

import ast
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DEADLINE = pytest.StashKey[float]()
GROUPS = ("mdp", "rl", "ec", "cluster", "opponents")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--changed-since", metavar="REV", help="the tests that a change since this commit could affect")
    parser.addoption("--minutes", type=float, default=1e9, help="tests that would begin later are skipped")


@pytest.hookimpl(trylast=True)  # when those that -m leaves out are gone
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    revision = config.getoption("changed_since")
    if revision is None:
        return
    files = changed_since(revision)
    steps = distances(files, importers())
    reached = {path: distance(path, files, steps) for path in {file_of(item) for item in items}}
    near = [(reach, item) for item in items if (reach := reached[file_of(item)]) is not None]
    config.hook.pytest_deselected(items=[item for item in items if reached[file_of(item)] is None])
    items[:] = [item for _, item in sorted(near, key=lambda pair: pair[0])]


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[DEADLINE] = time.monotonic() + 60 * session.config.getoption("minutes")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[DEADLINE]:
        pytest.skip("its minutes are over")


def file_of(item: pytest.Item) -> str:
    return str(item.path.relative_to(ROOT))


def changed_since(revision: str) -> list[str]:
    """The files that differ between a commit and the checkout, from its root. Raises CalledProcessError."""
    commands = (["diff", "--name-only", "--no-renames", revision, "--"], ["ls-files", "--others", "--exclude-standard"])
    texts = [subprocess.check_output(["git", "-C", ROOT, *command], text=True) for command in commands]
    return [line for text in texts for line in text.splitlines()]


def distances(files: Iterable[str], imported_by: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Breadth-first steps from the changed files to each module that imports them, directly or not.

    ``imported_by`` holds the importers of each module. A config file counts as the module of its ``_target_``.
    """
    chosen = {file: module for module, file, _ in choices()}
    modules = {chosen.get(file) or module_of(file) for file in files}
    steps: dict[str, int] = {}
    frontier, distance = {module for module in modules if module in imported_by}, 0
    while frontier:
        steps.update(dict.fromkeys(frontier, distance))
        frontier = {importer for module in frontier for importer in imported_by[module]} - steps.keys()
        distance += 1
    return steps


def distance(test_file: str, files: Iterable[str], steps: Mapping[str, int]) -> int | None:
    """Steps from the changed files to a test file; None if no change reaches it."""
    if test_file in files:
        return 0
    text = (ROOT / test_file).read_text()
    needed = {module for module, _, word in choices() if re.search(rf"\b{word}\b", text)} | set(imports(text))
    return min((steps[module] + 1 for module in needed if module in steps), default=None)


def imports(text: str) -> Iterable[str]:
    """The modules, and names of modules, that a source imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def choices() -> tuple[tuple[str, str, str], ...]:
    """The module, the config file and the word of each choice: ``evorl.rl.sac``, ``conf/rl/sac.yaml``, ``rl=sac``."""
    paths = [path for group in GROUPS for path in sorted((ROOT / "conf" / group).glob("*.yaml"))]
    targets = [(path, (yaml.safe_load(path.read_text()) or {}).get("_target_", "")) for path in paths]
    return tuple(
        (target.rpartition(".")[0], str(path.relative_to(ROOT)), f"{path.parent.name}={path.stem}")
        for path, target in targets if target
    )  # fmt: skip


def module_of(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")


@cache
def importers() -> dict[str, set[str]]:
    """The modules of evorl that import each module of evorl directly."""
    import grimp

    graph = grimp.build_graph("evorl")
    return {module: graph.find_modules_that_directly_import(module) for module in graph.modules}
