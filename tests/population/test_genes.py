"""Any number, switch or choice of a world or a learner as a gene: none ends a run that has begun."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import gymnasium
import numpy as np
import pytest
from harness import experiment_of, go
from msgspec import inspect

from evorl.ec.core import IndependentEvolution, Individual, pack
from evorl.ec.pbt import PBT
from evorl.ec.sga import SGA
from evorl.ec.space import Gene
from evorl.mdp.core import World
from evorl.mdp.gymnasium.world import Gymnasium
from evorl.population.evaluation import evaluation_plan
from evorl.population.genes import FIXED, genes, with_values
from evorl.population.results import IndividualResult
from evorl.training.experiment import Experiment
from evorl.util.errors import BadRequest

TINY = ("rl.slots=4", "rl.horizon=16", "rl.net.hidden=[8]")
PPO = ("rl.minibatch=32", "rl.passes=2")
MEMORY = ("rl.batch=8", "rl.samples_per_step=2", "rl.warm_up=32", "rl.capacity=2000")
PONG = ("mdp=pong", "mdp.rounds=2", "mdp.round_steps=60")
DUEL = ("mdp=duel", "mdp.ground.limit=3", "mdp.ground.storm=1")
PLACES = {
    "ppo": (*TINY, *PPO, "mdp=pendulum"),  # whose tuned settings normalise inputs and rewards
    "a2c": (*TINY, "mdp=cartpole", "rl=a2c"),
    "a3c": (*TINY, "mdp=cartpole", "rl=a3c"),
    "reinforce": (*TINY, "mdp=cartpole", "rl=reinforce"),
    "vtrace": (*TINY, "mdp=cartpole", "rl=vtrace", "rl.batch=8", "rl.fill_in=4"),
    "impact": (*TINY, "mdp=cartpole", "rl=impact", "rl.batch=4", "rl.replay.circular.batches=2"),
    "td3": (*TINY, *MEMORY, "mdp=pendulum", "rl=td3"),
    "sac": (*TINY, *MEMORY, "mdp=pendulum", "rl=sac"),
    "dqn": (*TINY, *MEMORY, "mdp=cartpole", "rl=dqn"),
    "r2d2": (*TINY, *MEMORY, "mdp=cartpole", "rl=r2d2"),
    "gymnasium": (*TINY, *PPO, "mdp=cartpole"),
    "pong": (*TINY, *PPO, *PONG),
    "duel": (*TINY, *PPO, *DUEL),
}
WORLDS = ("gymnasium", "pong", "duel")
"""Places whose world's keys evolve; the others stand for their algorithms."""
REFUSED = {"a3c": {"rl.asynchronous", "rl.normalize_rewards", "rl.correction"}, "pong": {"mdp.tell_side"}}
"""Keys of which an algorithm knows one value only, and those that change the inputs of a network."""


def lives(
    experiment: Experiment, evolution: IndependentEvolution, genomes: list[dict[str, Any]]
) -> list[IndividualResult]:
    """A line of descent: each takes over the weights of the one before and what it hands on, under its own genes."""
    how = evaluation_plan(experiment, evolution)
    member, answers = how.make(0), list[IndividualResult]()
    one = Individual(0, np.zeros(len(how.space.genes)), how.space.weights_of(0))
    for number, values in enumerate(genomes):
        one = one._replace(id=number, genes=how.space.coordinates(values, one.genes))
        answers.append(IndividualResult(*member.evaluate(pack([one])).each[0]))
        one = one._replace(weights=answers[-1].weights, memory=answers[-1].memory)
    return answers


def evolution(*evolving: tuple[str, Any], kind: type[IndependentEvolution] = PBT) -> IndependentEvolution:
    tree: dict[str, Any] = {}
    for name, leaf in evolving:
        *path, last = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = leaf
    return kind(population=2, train_steps=1, episodes=1, genes=tree)


# ------------------------------------------------------------------ every key


def leaves(node: Any, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key that is a number, a switch or a choice by its type, as a gene."""
    for field in fields(node):
        name, value = f"{prefix}.{field.name}", getattr(node, field.name)
        if name in FIXED:
            continue
        if is_dataclass(value):
            idle = getattr(node, "without", {}).get(field.name, ())  # numbers that a skill has no use for
            yield from (one for one in leaves(value, name) if one[0].rpartition(".")[2] not in idle)
        else:
            leaf = of(get_type_hints(type(node), include_extras=True)[field.name], value)
            if leaf:
                yield name, leaf


def of(hint: Any, value: Any) -> dict[str, Any]:
    kind = inspect.type_info(hint)
    arms = kind.types if isinstance(kind, inspect.UnionType) else [kind]
    words = [word for arm in arms if isinstance(arm, inspect.LiteralType) for word in arm.values]
    words += [word for arm in arms if isinstance(arm, inspect.BoolType) for word in (False, True)]
    if words:
        return {"choices": words}
    if any(isinstance(arm, inspect.IntType) for arm in arms):
        return {"low": value or 1, "high": 2 * (value or 1)}
    if any(isinstance(arm, inspect.FloatType) for arm in arms):
        return {"low": value / 2, "high": value} if value else {"low": 0.5, "high": 1}
    return {}


@pytest.mark.slow_cases(but=("td3",))
@pytest.mark.parametrize("place", PLACES)
def test_every_key_may_differ_from_parent_to_child(place: str) -> None:
    """All ranges together, from one end to the other, and each switch and choice from every value to the next one."""
    experiment = experiment_of(*PLACES[place])
    groups = {"mdp": experiment.mdp} if place in WORLDS else {"rl": experiment.rl}
    found = {name: leaf for group, node in groups.items() for name, leaf in leaves(node, group)}
    ranges = {name: leaf for name, leaf in found.items() if "low" in leaf}
    assert len(ranges) > 2 and len(found) > len(ranges)
    lines = [[{name: leaf[end] for name, leaf in ranges.items()} for end in ("low", "high")]]
    lines += [[{name: value} for value in (*leaf["choices"], leaf["choices"][0])] for name, leaf in found.items()
              if "choices" in leaf]  # fmt: skip
    refused = set()
    for genomes in lines:
        own = evolution(*((name, found[name]) for name in genomes[0]))
        try:
            answers = lives(experiment, own, genomes)
        except BadRequest as error:
            assert "\n" not in str(error)
            refused.add(error.key)
        else:
            assert [one.failed for one in answers] == [""] * len(genomes), genomes
            assert all(math.isfinite(one.objectives[0]) for one in answers)
    assert refused == {f"ec.genes.{name}" for name in REFUSED.get(place, ())}


def test_a_normaliser_that_the_parent_lacks_begins_with_the_child() -> None:
    """And one that it has goes on."""
    experiment = experiment_of(*PLACES["ppo"])
    name = "rl.normalize_rewards"
    switch = evolution((name, {"choices": [False, True]}))
    without, first, second = lives(experiment, switch, [{name: False}, {name: True}, {name: True}])
    assert without.memory is not None and without.memory["learner"]["reward_scale"] is None
    counts = [one.memory["learner"]["reward_scale"]["running"]["count"] for one in (first, second) if one.memory]
    assert counts == [64, 128]


# ------------------------------------------------------------------ on the command line

CARTPOLE = ("mdp=gymnasium", "mdp.id=CartPole-v1", *TINY, *PPO)
ACROBOT = (*CARTPOLE, "mdp.id=Acrobot-v1")
SWITCH = {"choices": [False, True]}
AT_THE_DOOR = [
    (CARTPOLE, "mdp.id", {"choices": ["CartPole-v1", "Acrobot-v1"]}, "reaches Acrobot-v1: its inputs and action are"),
    (CARTPOLE, "mdp.id", {"choices": ["CartPole-v9"]}, "its range reaches CartPole-v9: CartPole-v9 is not registered"),
    (CARTPOLE, "mdp.id", {"choices": ["antigravity:X-v0"]}, "its range reaches antigravity:X-v0: imports antigravity"),
    (ACROBOT, "mdp.vector", SWITCH, "its range reaches True: Acrobot-v1 has no vector environment of its own"),
    (CARTPOLE, "rl.normalize_inputs", SWITCH, "rl.normalize_inputs is the same for all individuals"),
    (CARTPOLE, "rl.passes", [1.2, 1.8], "takes whole numbers, which 1.2 is not"),
    (CARTPOLE, "rl.passes", [1, 3.5], "takes whole numbers, which 3.5 is not"),
    (CARTPOLE, "rl.passes", {"choices": [1, 2.5]}, "its range reaches 2.5: expected int"),
    (CARTPOLE, "rl.minibatch", {"choices": ["many", 8]}, "its range reaches many: expected int"),
    (CARTPOLE, "rl.lr", {"choices": [1e-3, {"start": 1e-3, "end": 0, "steps": 10}]}, "a choice is a number, a word"),
    (CARTPOLE, "rl.value_clip", {"choices": [None, 0.2]}, "a choice is a number, a word, true or false"),
    ((*DUEL, "rl.gamma={damage:0.9,win:1}"), "rl.gamma.damage", [0.5, 1.5], "its range reaches 1.5: expected float <="),
]


@pytest.mark.parametrize(("words", "name", "leaf", "line"), AT_THE_DOOR)
def test_what_a_key_cannot_be_for_all(words: tuple[str, ...], name: str, leaf: Any, line: str) -> None:
    with pytest.raises(BadRequest) as raised:
        genes(evolution((name, leaf)).genes, experiment_of(*words))
    assert raised.value.key == f"ec.genes.{name}" and line in str(raised.value)


def test_a_whole_choice_of_an_integer_s_key_is_an_integer() -> None:
    (gene,) = genes({"rl": {"passes": {"choices": [1e0, 2e0]}}}, experiment_of(*CARTPOLE))
    assert [type(value) for value in gene.choices] == [int, int]


def test_another_world_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "run"
    word = "+ec.genes.mdp.id={choices:[CartPole-v1,Acrobot-v1]}"
    assert go(*CARTPOLE, "ec=pbt", word, f"hydra.run.dir={there}") == 2
    said = capsys.readouterr().err
    assert said.startswith("evorl: ec.genes.mdp.id: its range reaches Acrobot-v1") and said.count("\n") == 1
    assert not there.exists()


def test_the_removal_of_a_gene_may_leave_its_place_empty() -> None:
    """``~ec.genes.mdp.archer.health`` does; where a gene itself is empty it is no gene."""
    experiment = experiment_of(*PLACES["duel"])
    lr = {"lr": [0.1, 0.2]}
    found = genes({"mdp": {"archer": {"roll": {}}, "knight": {}}, "rl": {"net": {}, **lr}}, experiment)
    assert [gene.name for gene in found] == ["rl.lr"] and genes({"mdp": {}, "rl": {}}, experiment) == ()
    for name, said in (("archer.health", "a range is"), ("archer.helth", "did you mean")):
        group, key = name.split(".")
        with pytest.raises(BadRequest, match=rf"^ec\.genes\.mdp\.{name}: .*{said}"):
            genes({"mdp": {group: {key: {}}}}, experiment)


# ------------------------------------------------------------------ together


def test_values_are_set_together() -> None:
    """No order in which they could be set one by one has a minibatch within the batch at every step."""
    experiment = experiment_of(*CARTPOLE)  # 4 x 16 decisions, 32 in a minibatch
    changed = with_values(experiment, {"rl.slots": 1, "rl.minibatch": 16, "rl.horizon": 16}).rl
    assert (changed.slots, changed.horizon) == (1, 16)


OPPONENT = ("mdp.opponent", {"choices": ["self", "rule"]})


@pytest.mark.parametrize(
    ("place", "kind", "evolving", "impossible", "possible", "reason"),
    [
        (
            *("gymnasium", PBT, [("rl.slots", [2, 8]), ("rl.horizon", [8, 32])]),
            *({"rl.slots": 2, "rl.horizon": 8}, {"rl.slots": 2, "rl.horizon": 32}, "rl.minibatch: 32 is more than"),
        ),
        (
            *("pong", PBT, [("rl.slots", [4, 6]), OPPONENT], {"rl.slots": 5, "mdp.opponent": "self"}),
            *({"rl.slots": 5, "mdp.opponent": "rule"}, "rl.slots: opponent=self needs an even number"),
        ),
        (
            *("pong", SGA, [("mdp.side", {"choices": ["random", "left"]}), OPPONENT]),
            *({"mdp.side": "left", "mdp.opponent": "self"}, {"mdp.side": "left", "mdp.opponent": "rule"}),
            "mdp.side: left contradicts opponent=self",
        ),
    ],
    ids=["batch", "seats", "play"],
)
def test_who_has_an_impossible_combination_has_no_fitness(
    place: str, kind: type[IndependentEvolution], evolving: list[Any], impossible: Any, possible: Any, reason: str
) -> None:
    both = evolution(*evolving, kind=kind)
    failed = lives(experiment_of(*PLACES[place]), both, [impossible])[0]
    assert math.isnan(failed.objectives[0]) and failed.failed.startswith(reason)
    assert lives(experiment_of(*PLACES[place]), both, [possible])[0].failed == ""


class Band(gymnasium.Env[Any, Any]):
    """Says only when it is made that one parameter must be below the other; their names are those of a range."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, low: float, high: float) -> None:
        if low >= high:
            raise ValueError("low must be below high")
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(2, np.float32), 1.0, False, self.t == 5, {}


@pytest.fixture
def band() -> Iterator[Experiment]:
    gymnasium.register("evorl-test/Band-v0", entry_point=Band)
    world = ("mdp=gymnasium", "mdp.id=evorl-test/Band-v0", "+mdp.kwargs={low:0.0,high:1.5}")
    yield experiment_of(*TINY, *PPO, *world)
    del gymnasium.registry["evorl-test/Band-v0"]


BOTH = [("mdp.kwargs.low", [0.0, 1.0]), ("mdp.kwargs.high", {"low": 0.5, "high": 2.0})]


@pytest.mark.parametrize("kind", [SGA, PBT])
def test_a_world_that_cannot_begin_has_no_fitness(kind: type[IndependentEvolution], band: Experiment) -> None:
    genomes = [{"mdp.kwargs.low": 0.9, "mdp.kwargs.high": high} for high in (0.6, 1.2)]
    failed, other = (lives(band, evolution(*BOTH, kind=kind), [genome])[0] for genome in genomes)
    assert math.isnan(failed.objectives[0]) and other.failed == ""
    assert failed.failed.startswith("mdp.kwargs: evorl-test/Band-v0 cannot be made: ValueError: low must be below high")


@dataclass(frozen=True, kw_only=True)
class Judged(Gymnasium):
    """Evaluations play a narrower form of it; a plain `ValueError` says that its class refuses what it is made of."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kwargs["low"] == self.kwargs["high"]:
            raise ValueError("low and high are equal")

    def evaluation_world(self) -> World:
        return replace(self, kwargs={**self.kwargs, "low": float(self.kwargs["low"]) + 0.25})


@pytest.mark.parametrize("kind", [SGA, PBT])
@pytest.mark.parametrize(
    ("high", "says"),
    [
        (0.5, "mdp: low and high are equal"),
        (0.75, "mdp: low and high are equal"),
        (0.6, "mdp.kwargs: evorl-test/Band-v0 cannot be made: ValueError: low must be below high"),
    ],
)
def test_a_form_of_a_world_that_cannot_begin_has_no_fitness(
    kind: type[IndependentEvolution], high: float, says: str, band: Experiment
) -> None:
    """Training takes 0.5 to 0.75, and evaluations do not; the range ends of both are possible alone."""
    mdp = Judged(**{key.name: getattr(band.mdp, key.name) for key in fields(band.mdp)})
    evolving = evolution(*BOTH, kind=kind)
    failed, other = (
        lives(replace(band, mdp=mdp), evolving, [{"mdp.kwargs.low": 0.5, "mdp.kwargs.high": end}])[0]
        for end in (high, 1.2)
    )
    assert math.isnan(failed.objectives[0]) and failed.failed.startswith(says) and other.failed == ""
    assert failed.cost == (64 if kind is PBT and high > 0.5 else 0)  # what it had trained for, a batch


@pytest.mark.parametrize("evolving", [*([one] for one in BOTH), BOTH])
def test_parameters_may_have_the_names_of_a_range(evolving: list[Any], band: Experiment) -> None:
    found = genes(evolution(*evolving).genes, band)
    assert [gene.name for gene in found] == [name for name, _ in evolving]
    with pytest.raises(BadRequest, match=r"^ec\.genes\.mdp\.kwargs: .*expected a mapping"):
        genes({"mdp": {"kwargs": {"choices": [0.5, 1.0]}}}, band)


# ------------------------------------------------------------------ what a world pays


@pytest.mark.parametrize(("lazy", "busy"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.25), (0.5, 0.25)])
def test_pong_pays_for_behaviour_as_the_genes_say(lazy: float, busy: float) -> None:
    """The same policy plays the same episodes: a price on every action but stay, a prize for each move of its bat."""
    paid = evolution(("mdp.reward.lazy", [0, 1]), ("mdp.reward.busy", [0, 1]), kind=SGA)
    genome = {"mdp.reward.lazy": lazy, "mdp.reward.busy": busy}
    (answer,) = lives(experiment_of(*TINY, *PPO, *PONG, "seed=1"), paid, [genome])
    result = {name: float(x[0]) for name, x in answer.result.items()}
    assert result["length"] > 20 and 0.1 < result["lazy"] < 0.9 and 0.1 < result["busy"] < 0.9
    extra = result["length"] * (busy * result["busy"] - lazy * (1 - result["lazy"]))
    assert result["return"] == pytest.approx(result["score"] + extra, abs=1e-4)


@pytest.mark.parametrize("name", ["mdp.reward.lazy", "mdp.reward.busy"])
def test_pong_teaches_as_the_genes_pay(name: str) -> None:
    experiment, paid = experiment_of(*TINY, *PPO, *PONG), evolution((name, [0, 1]))
    learned = [lives(experiment, paid, [{name: weight}])[0].weights for weight in (0.0, 1.0)]
    assert not np.array_equal(*learned)


def test_a_gene_of_a_keyword_has_its_type() -> None:
    experiment = experiment_of("mdp=pendulum", "+mdp.kwargs.g=9.8", *TINY, *PPO)
    assert genes({"mdp": {"kwargs": {"g": [5, 15]}}}, experiment) == (Gene("mdp.kwargs.g", 5, 15),)
    whole = experiment_of("mdp=pendulum", "+mdp.kwargs.g=10", *TINY, *PPO)
    assert genes({"mdp": {"kwargs": {"g": [5, 15]}}}, whole)[0].integer
