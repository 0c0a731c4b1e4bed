"""The policy that a run directory holds: of a checkpoint, and of an individual of a population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evorl.util.errors import BadRequest, nearest

if TYPE_CHECKING:
    import torch

    from evorl.ec.core import Evolver, IndependentEvolution, Individual
    from evorl.mdp.core import World
    from evorl.population.evaluation_plan import EvaluationPlan
    from evorl.rl.core import Learner, Metrics
    from evorl.training.experiment import Experiment
    from evorl.util.types import StateDict

LATEST = "latest"
"""The checkpoint with the most steps, also called ``last``."""
NEAR = 8
"""Number of ids that an error message lists."""


def checkpoint_name(word: str) -> str:
    """The name of a checkpoint: ``latest``, which ``last`` means as well, ``best``, or a step."""
    return LATEST if word == "last" else word


def check_checkpoint(run_dir: Path, which: str) -> None:
    """Raise `BadRequest` for a word that names no checkpoint of a run, which may have none yet."""
    from evorl.record import checkpoint

    kept = [str(step) for step in checkpoint.steps(run_dir)]
    choices = [LATEST, "last", "best", *kept]
    if which not in choices:
        raise BadRequest(f"{which!r} is none of {', '.join(choices)}{nearest(which, choices)}", "checkpoint")


def checkpoint_of(run_dir: Path, which: str) -> tuple[Path, dict[str, Any]]:
    """A checkpoint of a run, and the state of the run in it. Raises `BadRequest`."""
    from evorl.record import checkpoint

    which = checkpoint_name(which)
    if which == LATEST or (which == "best" and checkpoint.steps(run_dir)):
        try:
            path, run = checkpoint.run_state(run_dir)
        except BadRequest as error:
            raise error if error.key else error.under("run") from None
        best = checkpoint.best_step(run)
        if which == LATEST or best == run["steps"]:
            return path, run
        if best is not None:
            if best not in checkpoint.steps(run_dir):
                raise BadRequest(f"{run_dir} has no checkpoint of step {best}, its best one, any more", "checkpoint")
            return checkpoint.run_state(run_dir, best)
    if which == "best":
        raise BadRequest(f"{run_dir} has evaluated nothing yet", "checkpoint")
    check_checkpoint(run_dir, which)
    return checkpoint.run_state(run_dir, int(which))


class SavedPolicy(NamedTuple):
    """What a checkpoint holds of a policy."""

    policy: StateDict | None
    """The state of its learner; None for an individual of a problem, and for a run that holds none."""
    individual: Individual | None
    """The individual whose policy it is, in a population whose individuals are kept."""
    how: EvaluationPlan | None
    """How to evaluate that individual."""


def saved_policy(experiment: Experiment, path: Path, run: dict[str, Any], individual: int | str | None) -> SavedPolicy:
    """Return the policy of a checkpoint: of a population that of the best individual, or of the one that is named.

    Raises `BadRequest`.
    """
    from evorl.ec.core import IndependentEvolution
    from evorl.record.checkpoint import damage

    if isinstance(experiment.ec, IndependentEvolution):
        with damage(path):
            chosen, how = _individual(experiment, experiment.ec, run, str("best" if individual is None else individual))
        return SavedPolicy(None if how.learner is None else how.learner(chosen).state_dict(), chosen, how)
    check_individual(experiment, individual)
    return SavedPolicy(run["learner"], None, None)


def own_game(experiment: Experiment, saved: SavedPolicy) -> World | None:
    """The game of an individual that is evaluated in one of its own (``ec.lifetime=balance``); None for all others."""
    if saved.individual is None or saved.how is None or saved.how.evaluate is None:
        return None
    from evorl.population.genes import with_values

    return with_values(experiment, saved.how.space.values(saved.individual.genes)).mdp


def evaluated_by(saved: SavedPolicy, asked: Experiment, run: dict[str, Any]) -> SavedPolicy:
    """The same policy, evaluated as ``asked`` says, e.g. with another seed.

    The policy is that of the run's own seed, from which weights follow that went by a seed.
    """
    from evorl.ec.core import IndependentEvolution

    how = _plan(asked, asked.ec, run) if isinstance(asked.ec, IndependentEvolution) else None
    return saved._replace(how=how)


def own_evaluation(saved: SavedPolicy) -> Metrics:
    """Evaluate an individual that has a game of its own (`own_game`) as the run does."""
    assert saved.individual is not None and saved.how is not None and saved.how.evaluate is not None
    return saved.how.evaluate(saved.individual)


def check_individual(experiment: Experiment, individual: int | str | None) -> None:
    """Raise `BadRequest` for an individual of a run that keeps none, and for a word that names none of any run."""
    from evorl.ec.core import IndependentEvolution

    if individual is None:
        return
    if not isinstance(experiment.ec, IndependentEvolution):
        why = (
            "this run has no population" if experiment.ec is None else "this search keeps its mean, not its individuals"
        )
        raise BadRequest(why, "individual")
    word = str(individual)
    if word != "best" and not word.isdecimal():
        raise BadRequest(f"expected best or an id, got {word!r}{nearest(word, ['best'])}", "individual")


def snapshots(experiment: Experiment, path: Path, run: dict[str, Any]) -> list[SavedPolicy]:
    """Return the policies that a population keeps because its individuals play them, in a fixed order; of others none.

    Raises `BadRequest`.
    """
    from evorl.ec.core import IndependentEvolution
    from evorl.ec.opposing import Ranking
    from evorl.record.checkpoint import damage

    if not isinstance(experiment.ec, IndependentEvolution):
        return []
    with damage(path):
        evolver, how = _evolver(experiment, experiment.ec, run)
        if not isinstance(evolver, Ranking) or how.learner is None:
            return []
        return [SavedPolicy(how.learner(kept).state_dict(), kept, how) for kept in evolver.kept]


def _evolver(
    experiment: Experiment, evolution: IndependentEvolution, run: dict[str, Any]
) -> tuple[Evolver, EvaluationPlan]:
    """The evolver of a checkpoint, and how to evaluate its individuals."""
    how = _plan(experiment, evolution, run)
    evolver = evolution.evolver(how.space, experiment.seed)
    evolver.load_state_dict(run["evolver"])
    return evolver, how


def _plan(experiment: Experiment, evolution: IndependentEvolution, run: dict[str, Any]) -> EvaluationPlan:
    from evorl.population.evaluation import evaluation_plan

    genes = run.get("genes", evolution.genes)  # those at the time of the checkpoint
    return evaluation_plan(experiment, replace(evolution, genes=genes))


def _individual(
    experiment: Experiment, evolution: IndependentEvolution, run: dict[str, Any], which: str
) -> tuple[Individual, EvaluationPlan]:
    """An individual of a checkpoint's population, and how to evaluate it. Raises `BadRequest`."""
    from evorl.ec.core import Collecting, unpack_evaluations
    from evorl.ec.opposing import Ranking
    from evorl.ec.seeding import Seeding
    from evorl.population.dispatch import with_weights

    evolver, how = _evolver(experiment, evolution, run)
    # not the policies that agents of a league began with, whose ids are those of the first that learned from them
    kept = [one for one in evolver.kept if one.memory is not None] if isinstance(evolver, Ranking) else []
    present = [*kept, *(evaluation.individual for evaluation in evolver.population)]
    if isinstance(evolver, Collecting):
        arrived = [evaluation.individual for evaluation in evolver.arrived]
        if isinstance(evolver, Seeding):  # the weights of the current generation follow from the centre
            arrived = [with_weights(evolver.centre, individual, evolution.population) for individual in arrived]
        present += arrived
    individuals = {
        str(candidate.id): candidate for candidate in present if candidate.weights is not None or not how.space.weights
    }
    if "candidates" in run:  # missing in runs of older versions
        individuals |= {
            str(evaluation.individual.id): evaluation.individual for evaluation in unpack_evaluations(run["candidates"])
        }
    for leader in unpack_evaluations(run["leader"]):
        individuals["best"] = individuals[str(leader.individual.id)] = leader.individual
    if which not in individuals:
        seeds = [str(individual.id) for individual in present if individual.weights is None]
        ids = sorted(int(name) for name in individuals if name != "best")
        raise BadRequest(_unknown(which, ids, seeds, "best" in individuals), "individual")
    return individuals[which], how


def _unknown(which: str, ids: Sequence[int], seeds: Sequence[str], has_best: bool) -> str:
    """The error for an unknown individual, with the nearest ids; ``ids`` ascend, ``seeds`` have no weights any more."""
    if not ids:
        return "no individual has a fitness yet"
    near = sorted(ids, key=lambda number: abs(number - int(which)))[:NEAR] if which.isdecimal() else ids[-NEAR:]
    names = [*(["best"] if has_best else []), *map(str, sorted(near))]
    more = f" and {len(ids) - len(near)} more" if len(ids) > len(near) else ""
    held = f"this checkpoint holds: {', '.join(names)}{more}"
    if which == "best":
        return f"no individual has a fitness yet; {held}"
    meant = "" if which.isdecimal() else nearest(which, names)
    why = "was a seed around weights that the search has left, so none" if which in seeds else "is none"
    return f"{which!r} {why} that {held}{meant}"


class LoadedPolicy(NamedTuple):
    """The policy of a checkpoint, ready to act on the CPU."""

    path: Path
    """The checkpoint."""
    step: int
    learner: Learner
    individual: Individual | None
    """Whose policy it is, in a population."""
    game: World | None
    """That of the individual, if it has one of its own."""


def loaded_policy(experiment: Experiment, run_dir: Path, checkpoint: str, individual: int | str | None) -> LoadedPolicy:
    """Load the policy of a run directory. Raises `BadRequest`, also where a run has none."""
    import torch

    path, run = checkpoint_of(run_dir, checkpoint)
    saved = saved_policy(experiment, path, run, individual)
    policy, whose, _ = saved
    if policy is None:
        raise BadRequest(f"{path} holds no policy" if whose is None else "a problem has no policy", "run")
    learner = learner_of(experiment, policy, torch.device("cpu"), path)
    return LoadedPolicy(path, int(run["steps"]), learner, whose, own_game(experiment, saved))


def learner_of(experiment: Experiment, policy: dict[str, Any], device: torch.device, path: Path) -> Learner:
    """The learner of the experiment with the policy of a checkpoint. Raises `BadRequest` if it does not fit."""
    import torch

    from evorl.record.checkpoint import damage
    from evorl.training.train import policy_spec

    torch.set_num_threads(experiment.rl.threads)
    learner = experiment.rl.learner(policy_spec(experiment), experiment.seed, device)
    with damage(path):
        learner.load_policy(policy)
    return learner
