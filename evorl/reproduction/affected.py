"""Which sweeps a change could affect: those whose code, config files or pinned packages it touches.

A job runs the modules that evorl.run imports, those that its world, learner, evolver and cluster import, and Hydra's
plugins. It composes the files of Hydra's defaults list. Everything else (docs, tests, other choices) affects none. A
config file that is gone is in no list, and counts for all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evorl.cli import config
from evorl.reproduction.loop import first_job
from evorl.reproduction.parts import ROOT, Sweep
from evorl.util import command
from evorl.util.errors import BadRequest

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment


def changed(since: str) -> list[str]:
    """The files that differ between a commit and the checkout, from its root. Raises `BadRequest`."""
    affected = [
        _git("diff", "--name-only", "--no-renames", "--end-of-options", since, "--"),
        _git("ls-files", "--others", "--exclude-standard"),
    ]
    return [line for text in affected for line in text.splitlines()]


def affects(files: Sequence[str], sweep: Sweep) -> bool:
    """Whether a change of these files could affect the runs of a sweep, which differ in their seeds alone."""
    composed, modules = _needs(tuple(first_job(sweep.words)))
    return any(
        file == "pyproject.toml"
        or file in composed
        or (file.startswith("conf/") and not (ROOT / file).exists())  # an optional one may have been composed
        or file.startswith("hydra_plugins/")
        or (file.endswith(".py") and ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__") in modules)
        for file in files
    )


@cache
def _needs(words: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """The config files that a job composes, and the modules of evorl that it imports."""
    composed = {f"conf/{name}.yaml" for name in config.files_of_words(words)}
    return frozenset(composed), frozenset(_modules(config.experiment_of_words(words)))


def _modules(made: Experiment) -> set[str]:
    """The modules of evorl that a job imports."""
    try:
        import grimp
    except ModuleNotFoundError:
        raise BadRequest(f"needs the package grimp: {command.install('check')}", "since") from None
    graph = grimp.build_graph("evorl")
    own = {type(part).__module__ for part in (made.mdp, made.rl, made.ec, made.cluster)}
    begins = ["evorl.run", *(module for module in own if module in graph.modules)]
    modules = {*begins}.union(*(graph.find_upstream_modules(module) for module in begins))
    packages = {".".join(parts[:n]) for parts in (name.split(".") for name in modules) for n in range(1, len(parts))}
    return modules | packages


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8", errors="replace")
        return done.stdout
    except subprocess.CalledProcessError as error:
        raise BadRequest(f"git {' '.join(words)}: {error.stderr.strip().splitlines()[0]}", "since") from None
    except OSError as error:
        raise BadRequest(f"git cannot be run: {error}", "since") from None
