"""Which sweeps a change could affect: those whose code, config files or pinned packages it touches.

A job runs the modules that evorl.run imports, and those that its world, learner, evolver and cluster import. Config
files count where they are of the choices that a sweep names. Everything else (docs, tests, other choices) affects none.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evorl.cli import config
from evorl.reproduction.loop import first_job
from evorl.reproduction.parts import ROOT, Sweep
from evorl.util.errors import BadRequest

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment

ALWAYS = ("pyproject.toml", "conf/config.yaml")
BASES = frozenset({"gymnasium"})
"""Config files that others build on."""


def changed(since: str) -> list[str]:
    """The files that differ between a commit and the checkout, from its root. Raises `BadRequest`."""
    found = [
        _git("diff", "--name-only", "--no-renames", since, "--"),
        _git("ls-files", "--others", "--exclude-standard"),
    ]
    return [line for text in found for line in text.splitlines()]


def affects(files: list[str], sweep: Sweep) -> bool:
    """Whether a change of these files could affect the runs of a sweep, which differ in their seeds alone."""
    words = first_job(sweep.words)
    with config.opened() as hydra:
        chosen = config.compose(hydra, words).hydra.runtime.choices
    modules = _modules(config.experiment_of_words(words))
    return any(_touches(Path(file), chosen, modules) for file in files)


def _touches(file: Path, chosen: Mapping[str, str], modules: frozenset[str]) -> bool:
    if str(file) in ALWAYS:
        return True
    top, *rest = file.parts
    if top == "evorl" and file.suffix == ".py":
        return ".".join(file.with_suffix("").parts).removesuffix(".__init__") in modules
    if top != "conf":
        return False
    name = "/".join(rest).removesuffix(".yaml")
    if rest[0] == "experiment":  # which may build on the others of its folder
        return f"experiment/{chosen.get('experiment', '')}".rpartition("/")[0] == name.rpartition("/")[0]
    return name in {f"{group}/{choice}" for group, choice in chosen.items()} or file.stem in BASES


def _modules(made: Experiment) -> frozenset[str]:
    """The modules of evorl that a job imports."""
    try:
        import grimp
    except ModuleNotFoundError:
        raise BadRequest("since=REV needs grimp: make setup", "since") from None
    graph = grimp.build_graph("evorl")
    own = {type(one).__module__ for one in (made.mdp, made.rl, made.ec, made.cluster)}
    begins = ["evorl.run", *(module for module in own if module in graph.modules)]
    return frozenset(begins).union(*(graph.find_upstream_modules(module) for module in begins))


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        raise BadRequest(f"git {' '.join(words)}: {error.stderr.strip().splitlines()[0]}", "since") from None
    except OSError as error:
        raise BadRequest(f"git cannot be run: {error}", "since") from None
