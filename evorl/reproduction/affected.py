"""Which sweeps a change could affect: those whose code, config files or pinned packages it touches.

A job runs the modules that evorl.run imports, and those that its world, learner, evolver and cluster import. Config
files count where they are of the choices that a sweep names. Everything else (docs, tests, other choices) affects none.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from evorl.cli import config
from evorl.reproduction.loop import first_job
from evorl.reproduction.parts import ROOT, Sweep
from evorl.util.errors import BadRequest

GROUPS = ("mdp", "rl", "ec", "cluster")
ALWAYS = ("pyproject.toml", "conf/config.yaml")
BASES = frozenset({"gymnasium", "none", "local", "default"})
"""Config files that other files build on, or that are the default choice."""


def changed(since: str) -> list[str]:
    """The files that differ between a commit and the checkout, from its root. Raises `BadRequest`."""
    found = [
        _git("diff", "--name-only", "--no-renames", since, "--"),
        _git("ls-files", "--others", "--exclude-standard"),
    ]
    return [line for text in found for line in text.splitlines()]


def affects(files: list[str], sweep: Sweep) -> bool:
    """Whether a change of these files could affect the runs of a sweep."""
    chosen, modules = _choices(sweep), _modules(sweep)
    return any(_touches(Path(file), chosen, modules) for file in files)


def _touches(file: Path, chosen: dict[str, str], modules: frozenset[str]) -> bool:
    if str(file) in ALWAYS:
        return True
    top, *rest = file.parts
    if top == "evorl" and file.suffix == ".py":
        return ".".join(file.with_suffix("").parts).removesuffix(".__init__") in modules
    if top != "conf" or not rest:
        return False
    if rest[0] == "tuned":
        return file.stem == f"{chosen['mdp']}_{chosen['rl']}"
    return file.stem in {*chosen.values()} | BASES


def _choices(sweep: Sweep) -> dict[str, str]:
    """The files that a sweep's words choose, by config group."""
    words = [word.lstrip("+").partition("=") for word in sweep.words]
    return {"mdp": "pong", "rl": "ppo"} | {key: value for key, _, value in words if key in GROUPS}


def _modules(sweep: Sweep) -> frozenset[str]:
    """The modules of evorl that a job of the sweep imports."""
    try:
        import grimp
    except ModuleNotFoundError:
        raise BadRequest("since=REV needs grimp: make setup", "since") from None
    made = config.experiment_of_words(first_job(sweep.words))
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
