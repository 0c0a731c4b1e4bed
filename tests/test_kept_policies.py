"""The policies that tables keep beside their results: they are those of the tables, and evaluate to the same bits."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_evaluate import evaluate  # noqa: F401

from evorl.record import provenance
from evorl.reproduction.papers import PROGRAMS

pytestmark = pytest.mark.slow

POLICIES = sorted(PROGRAMS.glob("*/results/policies/*"))


PAGES = (
    "aes_rl/results/performance", "aes_rl/results/rules", "elite_replay/results/elite",
    "elite_replay/results/correction", "elite_replay/results/dqn", "lamarckian/results/sampling",
    "lamarckian/results/pbt", "lamarckian/results/football",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_a_table_shows_the_returns_of_its_policies(page: str) -> None:
    told = json.loads((PROGRAMS / f"{page}.json").read_text())
    places = (PROGRAMS / page).with_name("policies")
    for name, seed, mean in told["also"][-1]["rows"]:
        kept = json.loads((places / name / "evaluation.json").read_text())
        assert (f"{kept['seed']}", f"{kept['return_mean']:.2f}") == (seed, mean)


def _marks(place: Path) -> Any:
    slow = not place.name.endswith(("cartpole", "acrobot"))  # the episodes of the others take seconds
    marks = [pytest.mark.learn] if slow else []
    if "engine: gfootball" in (place / ".hydra" / "config.yaml").read_text():
        marks += [pytest.mark.skipif(find_spec("gfootball_engine") is None, reason="needs the engine: make football")]
    return pytest.param(place, id=f"{place.parts[-4]}-{place.name}", marks=marks)


@pytest.mark.parametrize("place", [_marks(place) for place in POLICIES])
def test_a_kept_policy_has_the_bits_that_it_had(place: Path, evaluate: Any) -> None:  # noqa: F811
    kept = json.loads((place / "evaluation.json").read_text())
    made = kept.pop("made")
    found = {**evaluate(f"run={place}"), "run": kept["run"]}
    versions = provenance.versions()
    here = {name: versions[name] for name in ("python", "torch", "numpy", "gymnasium")}
    here |= {"cpu": provenance.machine()["cpu"], "kernels": provenance.kernels()}
    kept.pop("individual", None)
    if here == made:
        assert found == kept
    else:  # other instructions and versions round differently, and games are chaotic
        wide = 4 * max(kept["return_std"], 1.0) / np.sqrt(kept["episodes"]) + 0.1 * abs(kept["return_mean"])
        assert found["return_mean"] == pytest.approx(kept["return_mean"], abs=wide)
