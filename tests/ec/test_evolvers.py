"""What every evolver keeps to, whatever it does in between. A new evolver needs one line in `CASES`."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from evorl.ec.acem_rl import ACEMRL
from evorl.ec.aes_rl import AESRL
from evorl.ec.asha import ASHA
from evorl.ec.cem import CEM
from evorl.ec.cem_rl import CEMRL
from evorl.ec.cma_es import CMAES
from evorl.ec.coevolution import Coevolution
from evorl.ec.conformance import GENES, drive, plain, same
from evorl.ec.conformance import evaluated as sound
from evorl.ec.core import Evaluation, Evolution, Evolver, IndependentEvolution, Individual
from evorl.ec.cso import CSO
from evorl.ec.hyperband import Hyperband
from evorl.ec.league import League
from evorl.ec.map_elites import MapElites
from evorl.ec.nsga2 import NSGA2
from evorl.ec.nsga3 import NSGA3
from evorl.ec.one_plus_one import OnePlusOne
from evorl.ec.one_plus_one_rl import OnePlusOneRL
from evorl.ec.openai_es import OpenAIES
from evorl.ec.optuna import Optuna
from evorl.ec.p_cem_rl import PCEMRL
from evorl.ec.pbt import PBT
from evorl.ec.pso import PSO
from evorl.ec.psro import PSRO
from evorl.ec.random import Random
from evorl.ec.sga import SGA
from evorl.ec.shared_critic import MEAN, SharedCriticEvolution, SteadyState
from evorl.ec.space import Gene, Space
from evorl.ec.space_change import SpaceChange

CONF = Path(__file__).parents[2] / "conf" / "ec"


def fresh(number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal(5).astype(np.float32)


MIXED = Space(GENES, 5, fresh, (2, 3))
ONLY_GENES = Space(GENES)
ONLY_WEIGHTS = Space((), 5, fresh, (2, 3))


@dataclass(frozen=True)
class Case:
    """An evolver at the size of a test, and what it cannot do."""

    hyper: Evolution
    spaces: tuple[Space, ...] = (MIXED, ONLY_GENES, ONLY_WEIGHTS)
    smallest: int = 1
    """The least population it takes."""
    bounded: bool = False
    """Whether no more than its population can be in flight."""
    waits: bool = False
    """Whether it always waits for a generation."""

    @property
    def modes(self) -> tuple[bool, ...]:
        """The values of ``asynchronous`` that it has; who shares a critic has one, which is no key."""
        either = isinstance(self.hyper, IndependentEvolution) and not self.waits
        return (False, True) if either else (self.hyper.asynchronous,)


CASES = {
    "pbt": Case(PBT(population=6, asynchronous=False), (MIXED, ONLY_GENES), bounded=True),
    "pbt-truncation": Case(
        PBT(population=5, exploit="truncation", worst=0.4, resample=0.0, warm_up=0, asynchronous=False),
        (MIXED, ONLY_GENES),
        bounded=True,
    ),
    "pbt-population": Case(
        PBT(population=4, opponents="population", asynchronous=False), (MIXED, ONLY_GENES), bounded=True
    ),
    "coevolution": Case(Coevolution(population=6, asynchronous=False), (MIXED, ONLY_GENES), smallest=2, bounded=True),
    "pbt-none": Case(PBT(population=4, exploit="none", asynchronous=False), (MIXED, ONLY_GENES), bounded=True),
    "league": Case(
        League(population=6, train_steps=10, snapshot=20, longest=30, capacity=5, opponents=2),
        (MIXED, ONLY_GENES),
        smallest=4,
        bounded=True,
    ),
    "psro": Case(PSRO(), (MIXED, ONLY_GENES), waits=True),
    "psro-several": Case(
        PSRO(population=3, slots=4, anew=True, symmetric=True, meta_solver="uniform", opponents=2),
        (MIXED, ONLY_GENES),
        waits=True,
    ),
    "random": Case(Random(population=6), (MIXED, ONLY_GENES)),
    "optuna": Case(Optuna(population=6), (MIXED, ONLY_GENES)),
    "optuna-cma_es": Case(Optuna(population=5, sampler="cma_es"), (ONLY_GENES,)),
    "asha": Case(ASHA(population=6, eta=3, R=9, asynchronous=False), (MIXED, ONLY_GENES)),
    "asha-late": Case(ASHA(population=2, eta=2, r=2, R=20, s=1, asynchronous=False), (MIXED, ONLY_GENES)),
    "hyperband": Case(Hyperband(eta=2, R=8), (MIXED, ONLY_GENES), waits=True),
    "hyperband-least": Case(Hyperband(eta=3, r=5, R=100), (MIXED, ONLY_GENES), waits=True),
    "nsga2": Case(NSGA2(population=6)),
    "nsga2-layers": Case(NSGA2(population=6, weights="layers", inherit_optimizer=True), (MIXED, ONLY_WEIGHTS)),
    "nsga2-odd": Case(NSGA2(population=5, offspring=3)),
    "nsga2-steady": Case(NSGA2(population=6, offspring=1)),
    "nsga3": Case(NSGA3(population=6)),
    "nsga3-steady": Case(NSGA3(population=6, offspring=1, divisions=2)),
    "sga": Case(SGA(population=6)),
    "sga-truncation": Case(SGA(population=6, selection="truncation", crossover=0, elites=2)),
    "sga-steady": Case(SGA(population=6, offspring=1, elites=6)),
    "openai_es": Case(OpenAIES(population=6)),
    "openai_es-marvin": Case(
        OpenAIES(
            population=5,
            antithetic=False,
            shaping="normalised",
            optimizer="sgd",
            momentum=0,
            weight_decay=0,
            sigma=0.1,
            lr=0.03,
            lr_decay=0.999,
        )
    ),
    "cem": Case(CEM(population=6)),
    "cem-plain": Case(CEM(population=6, weighting="equal", around="new", elite=0.2)),
    "one_plus_one": Case(OnePlusOne(window=5)),
    "one_plus_one-several": Case(OnePlusOne(population=4)),
    "cma_es": Case(CMAES(population=6), smallest=4),
    "cma_es-separable": Case(CMAES(population=6, separable_above=2), smallest=4),
    "pso": Case(PSO(population=6), bounded=True),
    "cso": Case(CSO(population=6, phi=0.1)),
    "cso-odd": Case(CSO(population=5)),
    "map_elites": Case(MapElites(population=6, descriptors={"score": (-30.0, 0.0, 8)})),
    "map_elites-gaussian": Case(
        MapElites(population=6, emitter="gaussian", descriptors={"gamma": (0.5, 0.9, 4), "score": (-9.0, 0.0, 3)}),
        (MIXED, ONLY_GENES),
    ),
    # who shares a critic has no genes, and cannot train more individuals than it has
    "cem_rl": Case(CEMRL(population=6, trained=2), (ONLY_WEIGHTS,), smallest=2),
    "cem_rl-paper": Case(CEMRL(population=5, divide=False, antithetic=False), (ONLY_WEIGHTS,), smallest=5),
    "p_cem_rl": Case(PCEMRL(population=6), (ONLY_WEIGHTS,), smallest=5),
    "acem_rl": Case(ACEMRL(population=6), (ONLY_WEIGHTS,)),
    "one_plus_one_rl": Case(OnePlusOneRL(window=3), (ONLY_WEIGHTS,)),
    "one_plus_one_rl-first": Case(OnePlusOneRL(sliding=False, trained_share=0.1), (ONLY_WEIGHTS,)),
    "aes_rl": Case(AESRL(scale=5.0), (ONLY_WEIGHTS,)),
    "aes_rl-linear": Case(AESRL(mean_rule="fixed_linear", negative=1.0, scale=5.0), (ONLY_WEIGHTS,)),
    "aes_rl-sigmoid": Case(AESRL(mean_rule="fixed_sigmoid", variance_rule="fixed", scale=5.0), (ONLY_WEIGHTS,)),
    "aes_rl-absolute": Case(AESRL(mean_rule="baseline_absolute", baseline=-9.0, scale=5.0), (ONLY_WEIGHTS,)),
}
EACH = [(name, i, case, space) for name, case in CASES.items() for i, space in enumerate(case.spaces)]
WORDS = {False: "synchronous", True: "asynchronous"}


def further(i: int, name: str = "", case: Case | None = None, mode: bool = True) -> list[pytest.MarkDecorator]:
    """Most tests run the same code in the first of an evolver's spaces, which has all that it can search.

    What waits for whom does not depend on an evolver's other keys, so its further settings have their own mode only.
    """
    again = case is not None and "-" in name and case.hyper.asynchronous != mode and len(case.modes) > 1
    return [pytest.mark.slow] * (i > 0 or again)


in_every_space = pytest.mark.parametrize(
    ("case", "space", "asynchronous"),
    [
        pytest.param(c, s, mode, id=f"{n}-{i}-{WORDS[mode]}", marks=further(0, n if i == 0 else f"{n}-{i}", c, mode))
        for n, i, c, s in EACH
        for mode in c.modes
    ],
)
each = pytest.mark.parametrize(
    ("case", "space"), [pytest.param(c, s, id=f"{n}-{i}", marks=further(i)) for n, i, c, s in EACH]
)
each_in_either_mode = pytest.mark.parametrize(
    ("case", "space", "asynchronous"),
    [
        pytest.param(c, s, mode, id=f"{n}-{i}-{WORDS[mode]}", marks=further(i, n, c, mode))
        for n, i, c, s in EACH
        for mode in c.modes
    ],
)
each_synchronous, each_asynchronous = (
    pytest.mark.parametrize(
        ("case", "space"),
        [pytest.param(c, s, id=f"{n}-{i}", marks=further(i)) for n, i, c, s in EACH if mode in c.modes],
    )
    for mode in (False, True)
)


with_one_study = pytest.mark.slow_cases("optuna-0-synchronous")  # it takes the time of ten others


def made(case: Case, space: Space, seed: int = 3, asynchronous: bool | None = None, **changes: Any) -> Evolver:
    """Its evolver, in the mode that is its default unless told. Who shares a critic may train, as the loop says."""
    if isinstance(case.hyper, IndependentEvolution) and asynchronous is not None:
        changes["asynchronous"] = asynchronous
    assert asynchronous is None or asynchronous in case.modes
    evolver = dataclasses.replace(case.hyper, **changes).evolver(space, seed)
    if isinstance(case.hyper, SharedCriticEvolution):
        vars(evolver)["ask"] = partial(evolver.ask, train=True)
    return evolver


def evaluated(case: Case, one: Individual) -> Evaluation:
    """A sound evaluation; the weights come back a little changed, as after training."""
    if "match" in (one.memory or {}):
        return played(case, one)
    return sound(one, case.hyper.several)


def played(case: Case, one: Individual) -> Evaluation:
    """The evaluation of a match of PSRO, whose individual has no weights."""
    match = (one.memory or {})["match"]
    earned = np.sin(np.add.outer(3.0 * match["player"] - np.array(match["others"]), [0.0, 1.0]))
    return Evaluation(one._replace(memory={"games": {"earned": earned}}), (math.nan,), 10)


def failed(case: Case, one: Individual) -> Evaluation:
    return evaluated(case, one)._replace(objectives=(math.nan,) * (1 + case.hyper.several))


def backwards(waiting: list[Individual]) -> list[Individual]:
    return waiting[::-1]


@in_every_space
def test_proposals_are_well_formed(case: Case, space: Space, asynchronous: bool) -> None:
    evolver = made(case, space, asynchronous=asynchronous)
    asked, evolver = drive(evolver, lambda one: evaluated(case, one), 40, slots=4)
    ids = [one.id for one in asked]
    assert len(set(ids)) == len(ids)
    for n, one in enumerate(asked):
        assert one.genes.shape == (len(space.genes),) and one.genes.dtype == np.float64
        assert (one.genes >= space.low).all() and (one.genes <= space.high).all()
        assert space.values(one.genes).keys() == {gene.name for gene in space.genes}
        assert (one.weights is None) == (space.weights == 0 or one.role == "match")
        if one.weights is not None:
            assert one.weights.shape == (space.weights,) and one.weights.dtype == np.float32
            assert np.isfinite(one.weights).all()
        assert set(one.parents) <= set(ids[:n]) and 0 <= one.birth <= 40 and one.role
        assert type(one.id) is int and type(one.birth) is int and all(type(p) is int for p in one.parents)
    assert len(evolver.population) >= 1
    plain(evolver.state_dict())


@each_synchronous
def test_a_generation_ends_whole(case: Case, space: Space) -> None:
    evolver = made(case, space)
    for _ in range(3):
        asked = evolver.ask()
        assert asked and evolver.ask() == [] and evolver.ask(1) == []
        evolver.tell([evaluated(case, one) for one in asked[1:]])
        assert len(asked) == 1 or evolver.ask() == []
        evolver.tell([evaluated(case, asked[0])])


@pytest.mark.slow_cases("optuna-cma_es-0")
@each_synchronous
def test_order_and_pieces_change_nothing(case: Case, space: Space) -> None:
    whole, ended = drive(made(case, space), lambda one: evaluated(case, one), order=lambda waiting: waiting[:])
    first, last, middle = (lambda w: w[:1], lambda w: w[-1:], lambda w: w[1:3] or w)
    for slots, order in ((None, backwards), (None, middle), (2, first), (4, last), (4, middle), (50, last)):
        asked, other = drive(made(case, space), lambda one: evaluated(case, one), slots=slots, order=order)
        same([one._asdict() for one in asked[:30]], [one._asdict() for one in whole[:30]])
        if other.state_dict()["told"] == ended.state_dict()["told"] and len(asked) == len(whole):
            same(other.state_dict(), ended.state_dict())


@pytest.mark.slow_cases(*(f"optuna{name}-0-{mode}" for name in ("", "-cma_es") for mode in WORDS.values()))
@each_in_either_mode
def test_resumed_at_every_point_it_goes_on_as_if_nothing_happened(case: Case, space: Space, asynchronous: bool) -> None:
    def resumed(evolver: Evolver) -> Evolver:
        again = made(case, space, asynchronous=asynchronous)
        again.load_state_dict(copy.deepcopy(evolver.state_dict()))
        same(again.state_dict(), evolver.state_dict())
        return again

    whole, ended = drive(made(case, space, asynchronous=asynchronous), lambda one: evaluated(case, one), slots=4)
    asked, other = drive(
        made(case, space, asynchronous=asynchronous), lambda one: evaluated(case, one), slots=4, after=resumed
    )
    same([one._asdict() for one in asked], [one._asdict() for one in whole])
    same(other.state_dict(), ended.state_dict())


@with_one_study
@each_in_either_mode
def test_seeds_differ_and_repeat(case: Case, space: Space, asynchronous: bool) -> None:
    def genomes(seed: int) -> list[Any]:
        evolver = made(case, space, seed, asynchronous=asynchronous)
        return [one._asdict() for one in drive(evolver, lambda one: evaluated(case, one), slots=3)[0]]

    first, again, other = map(genomes, (5, 5, 6))
    same(first, again)
    a, b = (
        [[*one["genes"], *(one["weights"] if one["weights"] is not None else [])] for one in found]
        for found in (first, other)
    )
    assert a != b


@with_one_study
@each_in_either_mode
def test_who_failed_is_no_parent(case: Case, space: Space, asynchronous: bool) -> None:
    bad: set[int] = set()

    def evaluate(one: Individual) -> Evaluation:
        if one.id % 3 != 1:
            return evaluated(case, one)
        bad.add(one.id)
        return failed(case, one)

    asked, evolver = drive(made(case, space, asynchronous=asynchronous), evaluate, 60, slots=3)
    assert bad and not any(bad & set(one.parents) for one in asked)
    assert not any(math.isnan(x) for one in evolver.population[:1] for x in one.objectives)


@each_in_either_mode
def test_when_all_fail_it_goes_on(case: Case, space: Space, asynchronous: bool) -> None:
    evolver = made(case, space, asynchronous=asynchronous)
    asked, _ = drive(evolver, lambda one: failed(case, one), 40, slots=3)
    assert all(np.isfinite(one.genes).all() for one in asked)
    assert all(np.isfinite(one.weights).all() for one in asked if one.weights is not None)


@with_one_study
@each_in_either_mode
def test_ties_and_infinities(case: Case, space: Space, asynchronous: bool) -> None:
    values = [0.0, 0.0, 0.0, -math.inf, -1e308, 1e308]
    for several in ([0.0], values):

        def evaluate(one: Individual, several: Sequence[float] = several) -> Evaluation:
            f = (several[one.id % len(several)], several[one.id // 2 % len(several)])
            return evaluated(case, one)._replace(objectives=f[: 1 + case.hyper.several])

        asked, _ = drive(made(case, space, asynchronous=asynchronous), evaluate, 40, slots=4)
        assert all((one.genes >= space.low).all() and (one.genes <= space.high).all() for one in asked)
        assert all(np.isfinite(one.weights).all() for one in asked if one.weights is not None)


@each_in_either_mode
def test_the_smallest_population(case: Case, space: Space, asynchronous: bool) -> None:
    evolver = made(case, space, population=case.smallest, asynchronous=asynchronous)
    asked, evolver = drive(evolver, lambda one: evaluated(case, one), 12)
    assert len(asked) >= 12 and len(evolver.population) >= 1


@each_asynchronous
def test_an_asynchronous_one_never_lets_a_slot_starve(case: Case, space: Space) -> None:
    evolver = made(case, space, asynchronous=True)
    waiting: list[Individual] = []
    for n in range(20):
        new = evolver.ask(7)
        assert len(new) == (min(7, case.hyper.population - len(waiting)) if case.bounded else 7)
        waiting += new
        evolver.tell([evaluated(case, one) for one in waiting[: n % 4]])
        waiting = waiting[n % 4 :]
    assert evolver.ask() or len(waiting) == case.hyper.population


@each_asynchronous
def test_an_asynchronous_one_proposes_what_is_known_by_then(case: Case, space: Space) -> None:
    """Who is asked for after the first population comes of those told so far, and no second population is drawn.

    A steady-state search that asks for evaluations of the mean counts a birth by the individuals learned from, since
    these tell how old a proposal is. The mean belongs to an individual that it has been told of, and not learned from.
    """
    evolver, slots = made(case, space, population=12, asynchronous=True), 4
    waiting: list[Individual] = []
    arrived: set[int] = set()
    for told in range(60):
        while len(waiting) < slots:
            known = {one.individual.id for one in evolver.population}
            (one,) = evolver.ask(1)
            waiting.append(one)
            if one.role == MEAN:
                known = arrived
            birth = evolver.generation if isinstance(evolver, SteadyState) else told
            assert one.id < 12 or (one.birth == birth and known >= {*one.parents})
            assert one.id < 12 + slots or one.role != "initial" or isinstance(case.hyper, Random | Optuna)
        arrived.add(waiting[0].id)
        evolver.tell([evaluated(case, waiting.pop(0))])


@each
def test_strangers_and_repeats_are_refused(case: Case, space: Space) -> None:
    evolver = made(case, space)
    one = evaluated(case, evolver.ask(1)[0])
    with pytest.raises(ValueError, match="was not asked for"):
        evolver.tell([one._replace(individual=one.individual._replace(id=10**6))])
    with pytest.raises(TypeError, match="objectives are a tuple"):
        evolver.tell([one._replace(objectives=one.objectives[0])])
    evolver.tell([one])
    with pytest.raises(ValueError, match="told of before"):
        evolver.tell([one])


OTHERS = (
    Gene("clip", 0.1, 0.3),
    Gene("gamma", 0.6, 0.8),
    Gene("kind", choices=("d", "b")),
    Gene("lr", 1e-4, 1e-2, log=True),
    Gene("passes", 1, 9, integer=True),
)  # two are new, one is gone, no range stays


@with_one_study
@each_in_either_mode
def test_it_goes_on_with_other_genes(case: Case, space: Space, asynchronous: bool) -> None:
    evolver = made(case, space, asynchronous=asynchronous)
    asked, evolver = drive(evolver, lambda one: evaluated(case, one), 27, slots=4)
    state = copy.deepcopy(evolver.state_dict())
    now = dataclasses.replace(space, genes=OTHERS)
    after, same_again = (made(case, into, asynchronous=asynchronous) for into in (now, space))
    usual = {"clip": 0.2, "passes": 4, "kind": "a"}
    move = SpaceChange(space, now, usual, 3)
    moved = after.remap_state(state, move)
    plain(moved)
    after.load_state_dict(moved)
    same(after.generation, evolver.generation)
    if not isinstance(after, SteadyState):  # which counts those that it has learned from
        same(after.state_dict()["told"], 27)
    people = {one.individual.id: one for one in evolver.population}
    assert 1 <= len(after.population) <= len(people)  # of MAP-Elites two may have come to share a cell
    for one in after.population:
        before = people[one.individual.id].individual
        same(one.individual.weights, before.weights)
        values = now.values(one.individual.genes)
        assert values["clip"] == pytest.approx(0.2) and values["passes"] == 4
        if space.genes:
            was = space.values(before.genes)
            assert values["gamma"] == min(max(was["gamma"], 0.6), 0.8)
            assert values["lr"] == pytest.approx(min(max(was["lr"], 1e-4), 1e-2), rel=1e-12)
            assert values["kind"] in ("d", "b") and (values["kind"] == "b" or was["kind"] != "b")

    told = {one.individual.id for one in evolver.population}
    flying = [one._replace(genes=move.genes(one.genes, one.id)) for one in asked if one.id in after.due]
    assert {one.id for one in flying} == after.due <= evolver.due
    assert not told & {one.id for one in flying}
    for one in flying:
        after.tell([evaluated(case, one)])
    found, after = drive(after, lambda one: evaluated(case, one), 60, slots=4)
    assert not {one.id for one in asked} & {one.id for one in found}, "an id is somebody else's"
    for one in found:
        assert one.genes.shape == (5,) and (one.genes >= now.low).all() and (one.genes <= now.high).all()
    last = found[len(found) // 2 :]
    if not isinstance(case.hyper, PBT) or case.hyper.exploit != "none":  # who never takes over never explores
        assert len({now.values(one.genes)["clip"] for one in last}) > 2, "what is new is not searched"

    still = same_again.remap_state(copy.deepcopy(evolver.state_dict()), SpaceChange(space, space, {}, 3))
    same_again.load_state_dict(still)
    for a, b in zip(evolver.population, same_again.population, strict=True):
        np.testing.assert_array_equal(a.individual.genes, b.individual.genes)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_its_file_and_its_dataclass_agree(path: Path) -> None:
    data = yaml.safe_load(path.read_text()) or {}
    if not data:
        return
    module, _, name = data.pop("_target_").rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    assert any(type(case.hyper) is kind for case in CASES.values()), f"{name} has no line in CASES"
    defaults = dataclasses.asdict(kind())
    assert data == {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
