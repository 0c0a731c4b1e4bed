"""The samplers of optuna as evolvers: genes and parameters, exact resumes, what optuna itself would propose."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from evorl.ec.core import Evaluation
from evorl.ec.optuna import Optuna, parameter, sampler, suggested
from evorl.ec.space import Gene, Space
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest

optuna = pytest.importorskip("optuna", reason="needs the extra optuna")
GENES = (
    *(Gene("lr", 1e-5, 1e-1, log=True), Gene("gamma", 0.5, 0.9), Gene("kind", choices=("a", "b", "c"))),
    *(Gene("passes", 2, 9, integer=True), Gene("batch", 2, 64, integer=True, log=True), Gene("fixed", 2, 2)),
)
SPACE = Space(GENES)
NAMES = ("tpe", "cma_es")


def fitness(genes: np.ndarray) -> float:
    return -float(np.sum((genes - 0.4) ** 2))


def searched(name: str, generations: int, resume: bool = False, space: Space = SPACE) -> tuple[list[Any], Any]:
    hyper: Any = Optuna(sampler=name, population=4)
    evolver, asked = hyper.evolver(space, 3), []
    for _ in range(generations):
        for one in evolver.ask():
            asked.append(one)
            evolver.tell([Evaluation(one, (np.nan if one.id % 5 == 4 else fitness(one.genes),))])
            if resume:
                state = evolver.state_dict()
                evolver = hyper.evolver(space, 3)
                evolver.load_state_dict(state)
    return asked, evolver


@pytest.mark.parametrize("name", NAMES)
def test_a_study_built_again_goes_on_with_the_same_proposals(name: str) -> None:
    once, again = (np.array([one.genes for one in searched(name, 5, resume)[0]]) for resume in (False, True))
    np.testing.assert_array_equal(once, again)


@pytest.mark.parametrize("name", NAMES)
def test_it_proposes_what_optuna_does(name: str) -> None:
    """A study of optuna's own, with the sampler of each trial, and parameters as in its documentation."""
    asked, evolver = searched(name, 4)
    study = optuna.create_study(direction="maximize")
    waiting = []
    for one in asked:
        study.sampler = sampler(name, seeds.key(3, "trial", one.id) >> 32)
        trial = study.ask()
        suggested_values = {
            "lr": np.exp(trial.suggest_float("lr", np.log(1e-5), np.log(1e-1))),
            "gamma": trial.suggest_float("gamma", 0.5, 0.9),
            "kind": "abc"[trial.suggest_categorical("kind", range(3))],
            "passes": trial.suggest_int("passes", 2, 9),
            "batch": trial.suggest_int("batch", 2, 64, log=True),
            "fixed": trial.suggest_float("fixed", 2, 2),
        }
        assert SPACE.values(one.genes) == pytest.approx(suggested_values)
        waiting.append((trial, one))
        if len(waiting) == 4:  # a generation is told as a whole
            for trial, known in waiting:
                if known.id % 5 == 4:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, fitness(known.genes))
            waiting = []
    values = [trial.value for trial in study.trials]
    assert [trial.value for trial in evolver.study.trials] == values and None in values


def test_parameters_and_coordinates_are_each_others_inverse() -> None:
    draw = np.random.default_rng(0)
    for genes in SPACE.sample(draw, 50):
        study = optuna.create_study()
        study.enqueue_trial({gene.name: parameter(gene, x) for gene, x in zip(GENES, genes.tolist(), strict=True)})
        trial = study.ask()
        back = np.array([suggested(trial, gene) for gene in GENES])
        assert SPACE.values(back) == SPACE.values(genes)


def test_an_initial_population_has_its_genes() -> None:
    space = Space(GENES, initial_values=lambda number: {"lr": 1e-3, "kind": "c"} if number < 3 else {})
    asked, _ = searched("tpe", 2, space=space)
    values = [space.values(one.genes) for one in asked]
    assert all((one["lr"], one["kind"]) == (pytest.approx(1e-3), "c") for one in values[:3])
    assert len({one["lr"] for one in values[3:]}) == 5


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match="sampler: samples genes, and there are none"):
        Optuna().evolver(Space((), 5))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BadRequest, match="sampler: this evolver needs optuna: pip install"):
        Optuna().evolver(SPACE)
