"""Which tests a change could affect."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import affected
import pytest
from affected import ROOT, choices, distance, distances, imports

IMPORTED_BY = {
    "evorl.util.seed": {"evorl.rl.sac", "evorl.rl.off_policy"},
    "evorl.rl.off_policy": {"evorl.rl.sac", "evorl.rl.td3"},
    "evorl.rl.sac": set[str](),
    "evorl.rl.td3": {"evorl.ec.aes_rl"},
    "evorl.ec.aes_rl": set[str](),
}


def test_a_module_is_as_far_as_the_shortest_chain_of_imports() -> None:
    steps = distances(["evorl/util/seed.py", "docs/sac.md"], IMPORTED_BY)
    want = {"evorl.util.seed": 0, "evorl.rl.sac": 1, "evorl.rl.off_policy": 1, "evorl.rl.td3": 2, "evorl.ec.aes_rl": 3}
    assert steps == want
    assert distances(["conf/rl/td3.yaml"], IMPORTED_BY) == {"evorl.rl.td3": 0, "evorl.ec.aes_rl": 1}
    assert distances(["README.md"], IMPORTED_BY) == {}


def test_a_test_file_is_reached_by_imports_by_words_and_by_itself() -> None:
    assert distance("tests/rl/test_dqn.py", ["tests/rl/test_dqn.py"], {}) == 0
    assert distance("tests/rl/test_dqn.py", [], {"evorl.rl.dqn": 3, "evorl.rl.a3c": 0}) == 4
    assert distance("tests/test_affected.py", [], {"evorl.rl.dqn": 0}) == 1, "for the word rl=dqn"
    assert distance("tests/rl/test_dqn.py", ["evorl/zoo.py"], {"evorl.zoo": 0}) is None


def test_what_is_imported() -> None:
    text = "import os.path\nfrom evorl.rl import sac\nfrom . import here\ndef f():\n    import evorl.zoo as z\n"
    assert {*imports(text)} == {"os.path", "evorl.rl", "evorl.rl.sac", "evorl.zoo"}


def test_every_choice_has_a_module() -> None:
    known = {word: (module, file) for module, file, word in choices()}
    assert known["rl=sac"] == ("evorl.rl.sac", "conf/rl/sac.yaml")
    assert all(find_spec(module) for module, _, _ in choices())


def test_the_nearest_run_first_and_the_others_not() -> None:
    left: list[Any] = []
    items = [
        SimpleNamespace(path=ROOT / "tests" / name)
        for name in ("rl/test_dqn.py", "test_zoo.py", "rl/test_off_policy.py")
    ]
    options = SimpleNamespace(
        getoption=lambda name: "REV", hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(affected, "changed_since", lambda revision: ["evorl/rl/dqn.py", "tests/rl/test_off_policy.py"])
        patch.setattr(affected, "importers", lambda: {"evorl.rl.dqn": set()})
        kept = [*items]
        affected.pytest_collection_modifyitems(options, kept)  # type: ignore[arg-type]
    assert [item.path.name for item in kept] == ["test_off_policy.py", "test_dqn.py"]
    assert [item.path.name for item in left] == ["test_zoo.py"]


def test_the_graph_is_that_of_evorl() -> None:
    assert "evorl.rl.sac" in affected.importers()["evorl.rl.off_policy"]
