"""The page of every evolver: its example finds what it should, its table has the defaults, it shows a curve."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from evorl.ec.cem_rl import CEMRL
from evorl.ec.core import Evolution, IndependentEvolution
from evorl.ec.genetic import Genetic
from evorl.ec.pbt import PBT
from evorl.ec.shared_critic import CriticWorker, MeanComparing, SharedCriticEvolution, SteadyStateEvolution

DOCS = Path(__file__).parents[2] / "docs"
OVERVIEW = (DOCS / "evolution.md").read_text()
EVOLVERS = sorted(path.stem for path in (DOCS.parent / "conf" / "ec").glob("*.yaml") if path.stem != "none")
PAGES = {name: (DOCS / "evolvers" / f"{name}.md").read_text() for name in EVOLVERS}
EXAMPLES = [(name, code) for name, text in PAGES.items() for code in re.findall(r"```python\n(.*?)```", text, re.S)]
LEAST = {
    "pbt": -1e-8, "coevolution": -1e-6, "league": -1e-6, "psro": -1e-9,
    "cem_rl": -1e-4, "p_cem_rl": -1e-4, "acem_rl": -1e-4, "one_plus_one_rl": -1e-4, "aes_rl": -5e-4,
    "openai_es": -0.01, "cma_es": -1e-8, "cem": -2e-3, "one_plus_one": -1e-8, "pso": -1e-4, "cso": -1e-6, "sga": -1e-2,
    "nsga2": -0.05, "nsga3": -0.05, "map_elites": -0.05, "random": -1.5,
    "optuna": -0.3, "asha": -0.01, "hyperband": -0.01,
}  # fmt: skip


@pytest.mark.slow_cases("map_elites", "nsga3", "optuna", "openai_es1")  # long, and like others of the page
@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_finds_what_it_should(name: str, code: str) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    assert LEAST[name] < names["best"] <= 0


def test_every_evolver_has_a_page_with_an_example_and_a_curve() -> None:
    assert {name for name, _ in EXAMPLES} == {*EVOLVERS} == LEAST.keys()
    assert sorted(re.findall(r"^\| \[`(\w+)`\]\(evolvers/\1\.md\)", OVERVIEW, re.MULTILINE)) == EVOLVERS
    assert {path.stem for path in (DOCS / "evolvers").iterdir()} == {*EVOLVERS}
    for name, text in PAGES.items():
        assert re.search(r"!\[[^\]]+\]\(\.\./\.\./benchmarks/\w+/results/[\w/]+\.(svg|png)\)", text), name
        assert f"ec={name}" in text and f"`evorl/ec/{name}.py`" in text, name


def table(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE))


SHARED = {"genetic": OVERVIEW, "shared_critic": (DOCS / "shared_critic.md").read_text().partition("\n## Decisions")[0]}
"""The pages of what several evolvers have in common, by its module."""
TABLES = {
    name: table(text.partition("\n## Keys\n")[2] if name != "genetic" else text)
    for name, text in {**PAGES, **SHARED}.items()
}


ELSEWHERE = (
    *(Evolution, IndependentEvolution, Genetic, SharedCriticEvolution, CriticWorker, SteadyStateEvolution),
    *(MeanComparing, CEMRL, PBT),
)
"""Classes whose keys stand in the conf file alone, or in the table of a section of their own."""


def own_fields(kind: type) -> list[str]:
    """The fields that a class and its mixins declare, but for those whose table stands elsewhere."""
    shown = [one for one in ELSEWHERE if one is not kind and issubclass(kind, one)]
    if kind is MeanComparing:  # whose table has the keys of all that share a critic
        shown = [Evolution]
    hidden = {base for one in shown for base in one.__mro__}
    mine = [one for one in bases(kind) if one not in hidden and dataclasses.is_dataclass(one)]
    return [*dict.fromkeys(field for one in mine for field in one.__annotations__)]


def bases(kind: type) -> list[type]:
    """A class after those that it is made of, from left to right."""
    return [*(one for base in kind.__bases__ for one in bases(base)), kind]


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table])
def test_a_table_has_the_defaults(name: str) -> None:
    module = importlib.import_module(f"evorl.ec.{name}")
    *_, kind = [
        one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__
        and issubclass(one, Evolution)
    ]  # fmt: skip
    told = {one.name: one.default for one in dataclasses.fields(kind) if one.default is not dataclasses.MISSING}
    told |= {one.name: one.default_factory() for one in dataclasses.fields(kind) if callable(one.default_factory)}
    told = json.loads(msgspec.json.encode(told))
    own = [field for field in own_fields(kind) if field in told]
    assert [*TABLES[name]] == own
    assert {key: yaml.safe_load(text) for key, text in TABLES[name].items()} == {key: told[key] for key in own}
