"""Populations that start from another run: who begins as whom, resumes, and what is refused."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evolution_runs import CASES, LR, QUICK, evaluated, journal
from harness import experiment_of, fingerprint, go, newest

from evorl.ec.core import Evaluation, Individual
from evorl.evaluate import main as evaluate
from evorl.population.loop import Population
from evorl.population.warm_start import saved_individuals
from evorl.rl.stacked_policies import Actor
from evorl.training.train import Start, spec

ALONE = tuple(word for word in QUICK if not word.startswith("ec."))
CART, NORMAL = ("mdp=cartpole",), ("mdp=cartpole", "rl.normalize_inputs=true")
KUHN = ("mdp=openspiel", "mdp.game=kuhn_poker")
SPHERE = ("mdp=problem", "mdp.id=sphere", "mdp.dimensions=5")
TRAIN = ("ec=pbt", "ec.asynchronous=false", "ec.train_steps=128", LR)
SOURCES = {
    "one": (*ALONE, *CART, "budget.steps=256"),
    "one-normal": (*ALONE, *NORMAL, "budget.steps=256"),
    "play": (*QUICK, *NORMAL, "ec=sga", "budget.steps=1200"),
    "seeds": (*QUICK, *CART, "ec=openai_es", "budget.steps=900", "cluster=processes", "cluster.workers=1"),
    "capped": (*QUICK, *CART, "ec=openai_es", "ec.cap=2", "budget.steps=900"),
    "train": (*QUICK, *NORMAL, *TRAIN, "ec.inherit_optimizer=true", "budget.steps=2000"),
    "plain": (*QUICK, *CART, *TRAIN, "budget.steps=2000"),
    "psro": (*QUICK, *KUHN, "ec=psro", "ec.population=1", "ec.train_steps=64", "ec.games=4", "budget.steps=400"),
    "sides": (*QUICK, *CASES["coevolution"]),
    "problem": (*QUICK, *SPHERE, "ec=sga", "budget.steps=60"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sources")
    for name, words in SOURCES.items():
        assert go(*words, f"hydra.run.dir={place / name}") == 0
    return place


def begun(source: Path, *words: str, optimizer: bool = False) -> Population:
    """A population that starts from a run."""
    experiment = experiment_of(*words)
    assert experiment.ec is not None
    return Population(experiment, experiment.ec, init=Start(source, optimizer))


def first(source: Path, *words: str, optimizer: bool = False) -> list[Individual]:
    """Its first generation."""
    population = begun(source, *words, optimizer=optimizer)
    population.fill_slots()
    asked = [one for task in population.in_flight for one in task.individuals]
    population.close()
    return asked


def policy(source: Path) -> np.ndarray:
    """The actor's weights of a run's policy."""
    experiment = experiment_of(*ALONE, *CART)
    return Actor(spec(experiment.mdp.evaluation_world()), experiment.rl.net).share(
        newest(source)["run"]["learner"]["policy"]
    )


@pytest.mark.slow_cases(but=("one-nsga2", "one-one_plus_one", "seeds-pso", "seeds-sga"))
@pytest.mark.parametrize("evolver", ["sga", "nsga2", "random", "one_plus_one", "pso", "cso", "map_elites"])
@pytest.mark.parametrize("source", ["one", "seeds"])
def test_everybody_begins_with_the_policy(evolver: str, source: str, sources: Path) -> None:
    more = ("+ec.descriptors={length:[0,500,5]}",) if evolver == "map_elites" else ()
    asked = first(sources / source, *QUICK, *CART, f"ec={evolver}", *more)
    assert len(asked) >= 6 or evolver == "one_plus_one"
    want = policy(sources / source)
    assert want.any() and all(np.array_equal(one.weights, want) for one in asked)


@pytest.mark.parametrize(("evolver", "sigma"), [("openai_es", 0.02), ("cem", 0.1), ("cma_es", 0.1)])
def test_a_search_with_a_centre_begins_around_the_policy(evolver: str, sigma: float, sources: Path) -> None:
    asked = first(sources / "one", *QUICK, *CART, f"ec={evolver}", "ec.population=40")
    away = np.array([one.weights for one in asked]) - policy(sources / "one")
    assert abs(away.std() / sigma - 1) < 0.1 and abs(away.mean()) < sigma / 10


def test_a_cap_is_of_its_own_run_alone(sources: Path) -> None:
    assert any(one.memory and one.memory["cap"] for one in saved_individuals(newest(sources / "capped")["run"]))
    asked = first(sources / "capped", *QUICK, *CART, "ec=sga")
    assert len(asked) == 6 and all(one.memory is None for one in asked)


def test_learners_begin_with_the_policy_its_statistics_and_no_steps(sources: Path) -> None:
    asked = first(sources / "one-normal", *QUICK, *NORMAL, *TRAIN)
    old = newest(sources / "one-normal")["run"]["learner"]
    assert len({one.genes[0] for one in asked}) == 6  # which a single run does not have
    for one in asked:
        assert one.memory is not None and one.memory["steps"] == 0 and {*one.memory["learner"]} == {"moments"}
        assert torch.equal(one.memory["learner"]["moments"]["0"]["mean"], old["moments"]["0"]["mean"])
        assert np.array_equal(one.weights, torch.cat([x.flatten() for x in old["policy"].values()]))
    for one in first(sources / "one-normal", *QUICK, *NORMAL, *TRAIN, optimizer=True):
        assert one.memory is not None
        assert torch.equal(one.memory["learner"]["optimizer"]["m"], old["optimizer"]["m"])


def test_policies_that_play_begin_with_the_statistics(sources: Path) -> None:
    old = newest(sources / "one-normal")["run"]["learner"]["moments"]["0"]
    for one in first(sources / "one-normal", *QUICK, *NORMAL, "ec=openai_es"):
        assert one.memory is not None and one.memory["moments"]["0"]["count"] == old["count"] > 0


@pytest.mark.parametrize(
    ("source", "words"), [("play", (*NORMAL, "ec=nsga2")), ("train", (*NORMAL, *TRAIN)), ("plain", (*CART, *TRAIN))]
)
def test_a_population_of_the_same_kind_comes_whole_the_best_first(
    source: str, words: tuple[str, ...], sources: Path
) -> None:
    people = saved_individuals(newest(sources / source)["run"])
    told = {line["id"]: line for line in journal(sources / source)}
    fitness = [told[one.id]["objectives"]["fitness"] for one in people]
    assert fitness[0] == max(fitness) and fitness[1:] == sorted(fitness[1:], reverse=True)
    asked = first(sources / source, *QUICK, *words)
    assert len(asked) == 6 and len({one.weights.tobytes() for one in asked if one.weights is not None}) > 1
    for new, old in zip(asked, people, strict=False):
        assert np.array_equal(new.weights, old.weights)
        if words[-1] == LR:
            values = experiment_values(new, *QUICK, *words)
            assert values == pytest.approx(told[old.id]["genes"], rel=1e-12)
            assert new.memory is not None and new.memory["steps"] == 0 and {*new.memory["learner"]} == {"moments"}


def experiment_values(one: Individual, *words: str) -> dict[str, Any]:
    from evorl.population.evaluation import evaluation_plan

    experiment = experiment_of(*words)
    assert experiment.ec is not None
    return evaluation_plan(experiment, experiment.ec).space.values(one.genes)


def test_more_individuals_than_there_were_begin_as_the_best(sources: Path) -> None:
    people = saved_individuals(newest(sources / "play")["run"])
    asked = first(sources / "play", *QUICK, *NORMAL, "ec=sga", "ec.population=9")
    assert all(np.array_equal(one.weights, people[0].weights) for one in asked[len(people) :])
    assert len(asked) == 9


def test_those_beyond_draw_genes_of_their_own(sources: Path) -> None:
    """Or whoever goes on drawing from the whole space would draw the best for ever."""
    words = ("ec=random", "ec.lifetime=train", "ec.population=9", LR)
    people = saved_individuals(newest(sources / "train")["run"])
    population = begun(sources / "train", *QUICK, *NORMAL, *words)
    asked = population.evolver.ask()
    population.evolver.tell([Evaluation(one, (0.0,)) for one in asked])
    population.warm_start.release()
    beyond = asked[len(people) :] + population.evolver.ask()
    population.close()
    assert len({one.genes[0] for one in beyond}) == len(beyond) > 9
    assert all(np.array_equal(one.weights, people[0].weights) for one in beyond)


def marked(population: Population) -> None:
    """Give each initial state a memory that says which it is."""
    initial = population.warm_start.initial
    population.warm_start.initial = [state._replace(memory={"state": k}) for k, state in enumerate(initial)]


def test_a_search_that_stops_early_tries_everybody_with_its_memory(sources: Path) -> None:
    words = ("ec=asha", "ec.eta=2", "ec.R=4", "ec.slots=1", LR)
    population = begun(sources / "train", *QUICK, *NORMAL, *words)
    marked(population)
    states, number = population.warm_start.initial, len(population.warm_start.initial)
    begun_as = list[int]()
    while len(begun_as) < number:
        (one,) = map(population._with_memory, population.evolver.ask(1))
        if one.role.startswith("initial"):
            begun_as.append(one.memory["state"])
            assert np.array_equal(one.weights, states[begun_as[-1]].weights)
        population.evaluations += 1
        population._learn([Evaluation(one, (-float(one.id),))], None)
    population.close()
    assert begun_as == [*range(number)] and population.evaluations > number > 4


def test_a_side_that_failed_whole_begins_again_as_its_own_best(sources: Path) -> None:
    population = begun(sources / "sides", *QUICK, *CASES["coevolution"][:-1], "ec.population=4")
    marked(population)
    asked = population.evolver.ask()
    scores = [0.5, 0.5, math.nan, math.nan]
    population.evolver.tell([Evaluation(one, (score,)) for one, score in zip(asked, scores, strict=True)])
    again = [population._with_memory(one) for one in population.evolver.ask()][2:]
    population.close()
    assert [(one.role, one.memory) for one in again] == [("initial", {"state": 2})] * 2
    assert all(np.array_equal(one.weights, asked[2].weights) for one in again)
    assert not np.array_equal(asked[2].weights, asked[0].weights)


def test_a_first_slice_of_a_league_is_repeated_with_its_memory(sources: Path) -> None:
    population = begun(sources / "psro", *QUICK, *KUHN, "ec=league", "ec.train_steps=64", "ec.population=4")
    marked(population)
    asked = population.evolver.ask()
    population.evolver.tell([Evaluation(one, (math.nan if one.id == 1 else 0.5,)) for one in asked])
    again = population._with_memory(population.evolver.ask()[1])
    population.close()
    assert len(population.warm_start.initial) > 1, "nobody has another state than the first"
    assert again.memory == {"state": 1} and np.array_equal(again.weights, asked[1].weights)


def test_of_a_search_by_seed_only_the_best_is_sent_to_workers(sources: Path) -> None:
    population = begun(sources / "play", *QUICK, *NORMAL, "ec=openai_es")
    assert len(population.warm_start.initial) == 1
    population.close()


def test_of_another_kind_comes_the_best(sources: Path) -> None:
    best = newest(sources / "train")["run"]["learner"]["policy"]
    actor = Actor(spec(experiment_of(*CART).mdp.evaluation_world()), experiment_of(*ALONE, *NORMAL).rl.net)
    for one in first(sources / "train", *QUICK, *NORMAL, "ec=sga"):
        assert np.array_equal(one.weights, actor.share(best))


def test_the_policies_of_psro_are_handed_on(sources: Path) -> None:
    """The best and the others, of which one checkpoint holds no ``population``."""
    individuals = first(sources / "psro", *QUICK, *KUHN, "ec=league", "ec.train_steps=64")
    saved = saved_individuals(newest(sources / "psro")["run"])
    assert saved and np.array_equal(individuals[0].weights, saved[0].weights)


@pytest.mark.parametrize("population", [2, 4, 8])
def test_each_side_begins_with_policies_that_learned_it(population: int, sources: Path) -> None:
    side_of = {row["id"]: row["side"] for row in journal(sources / "sides")}
    saved = saved_individuals(newest(sources / "sides")["run"])
    known = {one.weights.tobytes(): side_of[one.id] for one in saved if one.weights is not None}
    words = (*QUICK, *CASES["coevolution"][:-1], f"ec.population={population}")
    individuals = first(sources / "sides", *words)
    found = [known[one.weights.tobytes()] for one in individuals if one.weights is not None]
    assert found == [0] * (population // 2) + [1] * (population // 2)


def test_the_numbers_of_a_problem_are_handed_on(sources: Path) -> None:
    words = ("mdp=problem", "mdp.id=rastrigin", "mdp.dimensions=5", "ec=sga")
    people = saved_individuals(newest(sources / "problem")["run"])
    told = {line["id"]: line["genes"] for line in journal(sources / "problem")}
    for new, old in zip(first(sources / "problem", *QUICK, *words), people, strict=True):
        assert experiment_values(new, *QUICK, *words) == pytest.approx(told[old.id])


UNFIT = "init: the policy of {} does not fit: "
REFUSED = {
    "another network": (("one", *CART, "ec=sga", "rl.net.hidden=[9]"), f"{UNFIT}parameter"),
    "another world": (("one", "mdp=pong", "ec=sga"), "init: {} is a run of cartpole, whose policy does not fit: add"),
    "statistics": (("one-normal", *CART, "ec=sga"), f"{UNFIT}the weights were trained with normalize_inputs"),
    "no policy": (("problem", *CART, "ec=sga"), "init: {} is a run of problem, whose policy does not fit: add"),
    "no problem": (("one", "mdp=problem", "ec=sga"), "init: {} is a run of cartpole, whose policy does not fit: add"),
    "another size": (("problem", "mdp=problem", "ec=sga"), "init: {} is no evolution of a problem of 30 numbers"),
    "no run": (("nowhere", *CART, "ec=sga"), "init: {}: no such run directory"),
    "no optimiser": (("one", *CART, "ec=sga", "init_optimizer=true"), "init_optimizer: individuals that only play"),
    "no learner": (("problem", *SPHERE, "ec=sga", "init_optimizer=true"), "init_optimizer: a problem has no optimiser"),
    "not handed on": (("plain", *CART, *TRAIN, "init_optimizer=true"), "init_optimizer: the individuals of {} hand on"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(
    case: str, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source, *words), text = REFUSED[case]
    there = tmp_path / "run"
    capsys.readouterr()
    assert go(*QUICK, *words, f"init={sources / source}", f"hydra.run.dir={there}") == 2
    said = capsys.readouterr().err
    assert text.format(sources / source) in said and said.count("\n") == 1
    assert not there.exists()


def test_an_exported_policy_that_does_not_fit_is_no_missing_run(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names no world of its own, which a run's directory does."""
    kept, there = tmp_path / "kept", tmp_path / "run"
    assert evaluate([f"run={sources / 'one'}", f"export={kept}"]) == 0
    capsys.readouterr()
    assert go(*QUICK, *CART, "ec=sga", "rl.net.hidden=[9]", f"init={kept}", f"hydra.run.dir={there}") == 2
    said = capsys.readouterr().err
    assert f"{UNFIT}parameter".format(kept) in said and said.count("\n") == 1 and not there.exists()


RESUMED = {
    "es": ("one-normal", *NORMAL, "ec=openai_es", "budget.steps=2400"),
    "cem-train": ("one-normal", *NORMAL, "ec=cem", "ec.lifetime=train", "ec.train_steps=128", "budget.steps=4000"),
    "pbt": ("train", *NORMAL, *TRAIN, "ec.slots=2", "budget.steps=4000"),
    "random": ("play", *NORMAL, "ec=random", "ec.slots=2", "budget.steps=1600"),
}


@pytest.fixture(scope="module")
def alone(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A case's run in one process that nothing disturbs, made once."""
    place = tmp_path_factory.mktemp("alone")

    @cache
    def made(case: str) -> Path:
        source, *words = RESUMED[case]
        assert go(*QUICK, *words, f"init={sources / source}", f"hydra.run.dir={place / case}") == 0
        return place / case

    return made


@pytest.mark.slow_cases(but=("es",))
@pytest.mark.parametrize("case", RESUMED)
def test_a_resumed_run_needs_its_origin_no_more(
    case: str, sources: Path, alone: Callable[[str], Path], tmp_path: Path
) -> None:
    """Stopped within the first generation, when not everybody has begun, and afterwards."""
    source, *words = RESUMED[case]
    shutil.copytree(sources / source, tmp_path / "source")
    begun, steps = (*QUICK, *words[:-1], f"init={tmp_path / 'source'}"), int(words[-1].partition("=")[2])
    assert go(*begun, "budget.steps=1", f"hydra.run.dir={tmp_path / 'halves'}") == 0
    shutil.rmtree(tmp_path / "source")
    stops = []
    for budget in (steps // 2, steps):
        stops.append(newest(tmp_path / "halves")["run"]["steps"])
        assert go(f"resume={tmp_path / 'halves'}", f"budget.steps={budget}") == 0
    assert stops[0] < stops[1]
    assert journal(tmp_path / "halves") == journal(alone(case))
    assert evaluated(tmp_path / "halves") == evaluated(alone(case))
    assert fingerprint(tmp_path / "halves", aside=stops) == fingerprint(alone(case), aside=stops)


@pytest.mark.slow_cases(but=("es",))
@pytest.mark.parametrize("case", ["es", "pbt"])
def test_workers_know_the_origin(case: str, sources: Path, alone: Callable[[str], Path], tmp_path: Path) -> None:
    source, *words = RESUMED[case]
    where = ("cluster=processes", "cluster.workers=2")
    assert go(*QUICK, *words, f"init={sources / source}", *where, f"hydra.run.dir={tmp_path / 'there'}") == 0
    assert journal(tmp_path / "there") == journal(alone(case))
    assert evaluated(tmp_path / "there") == evaluated(alone(case))


@pytest.mark.slow
def test_workers_of_a_resumed_search_by_seed_play_nothing_in_vain(
    sources: Path, alone: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it was stopped in its first generation, new workers have begun with random parameters of that number."""
    source, *words = RESUMED["es"]
    begun, steps = (*QUICK, *words[:-1], f"init={sources / source}"), words[-1]
    where = ("cluster=processes", "cluster.workers=1")
    assert go(*begun, "budget.steps=1", *where, f"hydra.run.dir={tmp_path / 'halves'}") == 0
    capsys.readouterr()
    assert go(f"resume={tmp_path / 'halves'}", steps) == 0
    assert journal(tmp_path / "halves") == journal(alone("es"))
    assert "warning" not in "".join(capsys.readouterr())


@pytest.mark.slow
def test_a_run_is_repeated_from_what_it_began_with(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the other run went on meanwhile, and where both were moved; where it no longer holds that state, the
    repetition is refused."""
    source, one = tmp_path / "before" / "source", tmp_path / "before" / "one"
    shutil.copytree(sources / "plain", source)
    step = newest(source)["run"]["steps"]
    words = (*CART, "ec=pbt", "ec.train_steps=128", LR, "budget.steps=1500")
    assert go(*QUICK, *words, f"init={source}", f"hydra.run.dir={one}") == 0
    assert go(f"resume={source}", f"budget.steps={step + 1}") == 0
    assert newest(source)["run"]["steps"] > step
    (tmp_path / "before").rename(tmp_path / "after")
    source, one = tmp_path / "after" / "source", tmp_path / "after" / "one"
    assert go(f"replay={one}", f"hydra.run.dir={tmp_path / 'again'}") == 0
    assert journal(tmp_path / "again") == journal(one)
    shutil.rmtree(source / "checkpoints" / str(step))
    capsys.readouterr()
    assert go(f"replay={one}", f"hydra.run.dir={tmp_path / 'third'}") == 2
    assert f"init: {source} holds no checkpoint of step {step} any more" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()
