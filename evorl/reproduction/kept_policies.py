"""The trained policies that tables keep beside their results: benchmarks/PAPER/results/policies/NAME."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from evorl.cli import config
from evorl.mdp.core import World
from evorl.record import run_names
from evorl.reproduction import papers
from evorl.reproduction.papers import PROGRAMS
from evorl.reproduction.scores import score_text
from evorl.util import run_directory


@dataclass(frozen=True)
class KeptPolicy:
    """A small run directory without records, and how its policy was evaluated when it was kept."""

    name: str
    """``PAPER/NAME``."""
    directory: Path
    evaluation: dict[str, Any]
    """The content of evaluation.json."""
    table: str
    """The table that made it, as ``PAPER/TABLE``."""

    @property
    def world(self) -> str:
        """The game by its own name, behind the kind of its world where that is not in the name: ``Atari pong``."""
        node = self._config["mdp"]
        title, kind = config.group_object(node, World, "mdp", ()).title, _class_of(node)
        return title if "id" in node or title == kind else f"{kind} {title}"

    @property
    def learner(self) -> str:
        """The learner whose policy it is; an evolver that trained or found it is in the name."""
        return _class_of(self._config["rl"])

    @property
    def page(self) -> Path:
        """The result of its table, with curves and intervals, as Markdown and as data."""
        return PROGRAMS / f"{self.table.replace('/', '/results/')}.md"

    def score(self) -> str:
        """The interquartile mean of the runs beside it, with its interval; empty where it is of the only run."""
        own = _scores(self.table, self.page).get(self.directory.name)
        digits = 0 if own is None or abs(float(own["iqm"] or 0)) >= 100 else 1
        return score_text(own, digits) if own else ""

    @property
    def digest(self) -> str:
        """The checksum of the checkpoint."""
        folder = f"checkpoints/{self.evaluation['step']}"
        return str(run_directory.read_json(self.directory / folder, "manifest.json")["sha256"])

    @cached_property
    def _config(self) -> dict[str, Any]:
        return config.read_run_config(self.directory, "zoo")


@lru_cache
def _scores(table: str, page: Path) -> Mapping[str, Mapping[str, float | None]]:
    """The scores of a table's policies, by their names; of some tables none."""
    scores = papers.table(table).policy_scores
    return scores(json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["data"]) if scores else {}


def kept_policies() -> list[KeptPolicy]:
    """Return all kept policies in the order of their names. Raises `BadRequest` where there are none."""
    tables = {path: path.read_text(encoding="utf-8") for path in PROGRAMS.glob("*/results/*.json")}
    return [
        KeptPolicy(name, directory, run_directory.read_json(directory, "evaluation.json"), table)
        for name, directory in run_names.kept_directories().items()
        if (table := _table_of(directory, tables))
    ]


def find(name: str) -> KeptPolicy:
    """Return the policy that `evorl.record.run_names.kept_name` finds. Raises `BadRequest`."""
    kept = {policy.name: policy for policy in kept_policies()}
    return kept[run_names.kept_name(name, [*kept], "zoo")]


def _table_of(directory: Path, tables: dict[Path, str]) -> str:
    """The table whose result names a policy, as ``PAPER/TABLE``; empty before that result is written."""
    paper = directory.parents[2].name
    near = [path for path, text in sorted(tables.items()) if path.parents[1].name == paper and _names(text, directory)]
    return f"{paper}/{near[-1].stem}" if near else ""


def _names(text: str, directory: Path) -> bool:
    """Whether the result of a table has a policy among its rows, or its film."""
    return f'"{directory.name}"' in text or f"({directory.name}.mp4)" in text


def _class_of(node: dict[str, Any]) -> str:
    return str(node["_target_"]).rpartition(".")[2]
