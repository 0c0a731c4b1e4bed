"""The league: who plays whom, against the pseudocode of AlphaStar; snapshots, resets, and rock, paper, scissors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from evorl.ec.core import Evaluation, Individual
from evorl.ec.league import League, Strategy
from evorl.ec.matchmaking import Payoffs, Player, Shares, bounded, matches
from evorl.ec.space import Gene, Space
from evorl.ops.payoffs import nash

SPACE = Space(weights=2, fresh=lambda number: np.array([number, 0], np.float32))
AGENTS = [
    *(Player(0, "main", 0), Player(1, "main", 1)),
    *(Player(2, "main exploiter", 2), Player(3, "league exploiter", 3)),
]
Score = Callable[[Player], float]


# ------------------------------------------------------------------ the pseudocode, one match at a time


def pfsp(draw: np.random.Generator, players: Sequence[Player], score: Score, weighting: str) -> Player:
    x = np.array([score(one) for one in players])
    weights = {"squared": (1 - x) ** 2, "variance": x * (1 - x), "capped": np.minimum(0.5, 1 - x)}[weighting]
    total = weights.sum()
    return players[draw.choice(len(players), p=weights / total if total >= 1e-10 else None)]


def pfsp_branch(draw: np.random.Generator, past: list[Player], score: Score) -> Player:
    return pfsp(draw, past, score, "squared")


def selfplay_branch(draw: np.random.Generator, opponent: Player, past: list[Player], score: Score) -> Player:
    if score(opponent) > 0.3:
        return opponent
    return pfsp(draw, [one for one in past if one.agent == opponent.number], score, "variance")


def verification_branch(draw: np.random.Generator, opponent: Player, past: list[Player], score: Score) -> Player | None:
    exploiters = [one for one in past if one.role == "main exploiter"]
    if exploiters and min(score(one) for one in exploiters) < 0.3:
        return pfsp(draw, exploiters, score, "squared")
    historical = [one for one in past if one.agent == opponent.number]
    x, kept = [score(one) for one in historical], list[Player]()
    for i in range(len(x) - 1, 0, -1):
        if x[i - 1] < x[i]:
            kept = historical[: i + 1]
            break
    if kept and min(score(one) for one in kept) < 0.7:
        return pfsp(draw, kept, score, "squared")
    return None


def get_match(draw: np.random.Generator, own: Player, past: list[Player], score: Score) -> Player:
    mains = [one for one in AGENTS if one.role == "main"]
    if own.role == "league exploiter":
        return pfsp(draw, past, score, "capped")
    coin, opponent = draw.random(), mains[draw.integers(len(mains))]
    if own.role == "main exploiter":
        if score(opponent) > 0.1:
            return opponent
        return pfsp(draw, [one for one in past if one.agent == opponent.number], score, "variance")
    if coin < 0.5:
        return pfsp_branch(draw, past, score)
    if coin < 0.5 + 0.15 and (request := verification_branch(draw, opponent, past, score)) is not None:
        return request
    return selfplay_branch(draw, opponent, past, score)


def league(number: int) -> tuple[list[Player], Score]:
    """Snapshots of all agents, and scores against everybody, some of them so that each branch is taken."""
    draw = np.random.default_rng(number)
    parents = [0, 1, *draw.integers(0, 4, 5).tolist()]
    past = [Player(4 + k, AGENTS[agent].role, 4 + k, agent) for k, agent in enumerate(parents)]
    power = (0.3, 1.0, 3.0)[number % 3]  # a strong agent, an even one, a weak one
    x = dict(enumerate((draw.random(4 + len(past)) ** power).tolist()))
    return past, lambda one: x[one.number]


@pytest.mark.slow_cases("main 1")
@pytest.mark.parametrize("own", AGENTS, ids=lambda own: f"{own.role} {own.number}")
def test_opponents_are_those_of_the_pseudocode(own: Player) -> None:
    for number in range(9):
        past, free = league(number)

        def score(one: Player, free: Score = free) -> float:
            return 0.5 if one.number == own.number else free(one)

        draw, n = np.random.default_rng(number), 2000
        counts = np.zeros(len(AGENTS) + len(past))
        for _ in range(n):
            counts[get_match(draw, own, past, score).number] += 1
        mixture = matches(own, [*AGENTS, *past], score, Shares(0.35, 0.15))
        assert sum(mixture.values()) == pytest.approx(1)
        p = np.array([mixture.get(k, 0.0) for k in range(len(counts))])
        assert (np.abs(counts - n * p) <= 4.5 * np.sqrt(n * p * (1 - p))).all(), (number, counts / n, p)


def test_a_main_agent_plays_itself_and_an_exploiter_never_does() -> None:
    past, _ = league(0)
    for own in AGENTS:
        mixture = matches(own, [*AGENTS, *past], lambda one: 0.5, Shares(0.35, 0.15))
        assert (own.number in mixture) == (own.role == "main")
        assert not any(one.number in mixture for one in AGENTS if one.role != "main")


def test_a_bounded_mixture_is_right_on_average() -> None:
    draw = np.random.default_rng(1)
    for size in (3, 7, 40):
        chances = draw.random(size) ** 3
        mixture = dict(enumerate((chances / chances.sum()).tolist()))
        each = [bounded(mixture, 7, (k + 0.5) / 1000) for k in range(1000)]
        assert max(map(len, each)) <= 7 and all(sum(one.values()) == pytest.approx(1) for one in each)
        mean = [sum(one.get(k, 0.0) for one in each) / 1000 for k in mixture]
        np.testing.assert_allclose(mean, [*mixture.values()], atol=2e-3)
        assert size > 7 or each[0] == mixture


def test_payoffs_fade() -> None:
    payoffs, draw = Payoffs(0.9), np.random.default_rng(2)
    points = draw.choice([0.0, 0.5, 1.0], 30)
    assert payoffs.score(3, 5) == 0.5
    for x in points:
        payoffs.record(3, 5, float(x))
    weights = 0.9 ** np.arange(30)[::-1]
    assert payoffs.score(3, 5) == pytest.approx(points @ weights / weights.sum())
    assert payoffs.score(5, 3) == pytest.approx(1 - payoffs.score(3, 5))
    payoffs.record(3, 6, 1.0)
    payoffs.forget(5)
    assert payoffs.score(3, 5) == payoffs.score(5, 3) == 0.5 and payoffs.score(3, 6) == 1
    payoffs.load_state_dict({"pairs": [[3, 6, 1, 0, 0], [4, 4, 1, 0, 1]]})  # as older ones counted a player's own games
    assert payoffs.score(3, 6) == 1 and payoffs.games(4, 4) == 0


# ------------------------------------------------------------------ snapshots and resets


def agents(**changes: Any) -> Strategy:
    hyper = {"population": 3, "league_exploiters": 1, "train_steps": 10, "snapshot": 20, "longest": 40, **changes}
    return League(**hyper).evolver(SPACE, 7)


def slices(evolver: Strategy, points: Callable[[int, int], float], number: int = 1, failed: int | None = None) -> None:
    """Let every agent learn and play each of its opponents three times; ``points`` of an agent against a player."""

    def told(agent: int, one: Individual) -> Evaluation:
        weights = one.weights + np.float32(0.125)
        met = [match.number for match in evolver.opponents(one.id)] * 3
        games = {"opponents": met, "points": [points(agent, other) for other in met]}
        steps = (one.memory or {}).get("steps", 0) + 10
        after = one._replace(weights=weights, memory={"steps": steps, "games": games, "acting": {"learner": {}}})
        return Evaluation(after, (float("nan") if agent == failed else 0.0,))

    for _ in range(number):
        evolver.tell([told(agent, one) for agent, one in enumerate(evolver.ask())])


def taken(evolver: Strategy) -> list[tuple[int, str, float]]:
    """Each snapshot's agent and role, and its distance from the start of that agent in slices."""
    found = [(one.agent, one.role, evolver.policies.by_number[one.policy]) for one in evolver.snapshots]
    return [(agent, role, float((policy.weights[1]) / 0.125)) for agent, role, policy in found if agent is not None]


def test_the_first_copies_of_main_agents_stay_as_they_were() -> None:
    evolver = agents()
    slices(evolver, lambda agent, other: 0.5)
    assert taken(evolver) == [(0, "main", 0.0)]
    assert evolver.policies.by_number[evolver.agents[0].policy].weights[1] == 0.125
    assert evolver.policies.by_number[evolver.agents[0].policy].memory == {"learner": {}}
    assert evolver.population[0].individual.memory == {"steps": 10}


def test_the_steps_of_a_slice_are_those_that_it_took() -> None:
    """Batches are whole: with train_steps=7 an agent that learns 10 at a time is due at 20, after two slices."""
    evolver = agents(train_steps=7, snapshot=20, longest=20)
    slices(evolver, lambda agent, other: 0.0, 2)
    assert [(agent, at) for agent, _, at in taken(evolver)[1:]] == [(0, 2.0), (1, 2.0), (2, 2.0)]


def test_who_beats_all_becomes_a_snapshot_before_the_others() -> None:
    evolver = agents(main_exploiters=1)
    slices(evolver, lambda agent, other: float(agent == 0))
    assert taken(evolver) == [(0, "main", 0.0)]  # too early
    slices(evolver, lambda agent, other: float(agent == 0))
    assert taken(evolver)[1:] == [(0, "main", 2.0)]
    slices(evolver, lambda agent, other: 0.0, 2)  # the main agent now loses; the exploiters have had their time
    assert taken(evolver)[2:] == [(1, "main exploiter", 4.0), (2, "league exploiter", 4.0)]
    slices(evolver, lambda agent, other: 0.0, 2)
    assert taken(evolver)[4:] == [(0, "main", 6.0)]


def test_an_exploiter_begins_anew_once_its_snapshot_is_taken() -> None:
    for reset in (0.0, 1.0):
        evolver = agents(reset=reset)
        slices(evolver, lambda agent, other: 1.0, 2)
        assert [(agent, at) for agent, _, at in taken(evolver)[1:]] == [(0, 2.0), (1, 2.0), (2, 2.0)]
        main, exploiter, league_exploiter = evolver.ask()
        assert (main.role, exploiter.role) == ("goes on", "reset")
        assert main.weights[1] == 0.25 and exploiter.weights[1] == 0 and exploiter.memory is None
        assert league_exploiter.role == ("reset" if reset else "goes on")
        assert evolver.resets == 1 + reset
        assert evolver.payoffs.score(1, 0) == 0.5 and evolver.payoffs.score(0, 3) == 1


def test_a_failed_slice_is_repeated() -> None:
    evolver = agents()
    slices(evolver, lambda agent, other: 1.0)
    slices(evolver, lambda agent, other: 1.0, failed=0)
    assert [agent for agent, *_ in taken(evolver)[1:]] == [1, 2]  # the main agent has learned for one slice
    main, *_ = evolver.ask()
    assert main.role == "goes on" and main.parents == (0,) and main.weights[1] == 0.125


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_a_failed_first_slice_is_repeated_as_it_began(failed: int) -> None:
    evolver = agents()
    first = evolver.policies.by_number[failed]
    for _ in range(2):
        slices(evolver, lambda agent, other: 1.0, failed=failed)
        again = evolver._queue[failed]
        assert (again.role, again.parents, again.memory) == ("initial", (), None) and again.id > failed
        assert np.array_equal(again.weights, first.weights) and np.array_equal(again.genes, first.genes)


def test_a_failed_slice_after_a_reset_is_repeated_as_it_began() -> None:
    space = Space((Gene("x", 0.0, 1.0),), 2, lambda number: np.full(2, number, np.float32))
    hyper = League(population=3, league_exploiters=1, train_steps=10, snapshot=20, longest=40)
    evolver, resumed = hyper.evolver(space, 7), hyper.evolver(space, 7)
    slices(evolver, lambda agent, other: 1.0, 2)
    first = evolver._queue[1]
    for _ in range(2):
        slices(evolver, lambda agent, other: 1.0, failed=1)
        resumed.load_state_dict(evolver.state_dict())
        for again in (evolver._queue[1], resumed._queue[1]):
            assert (again.role, again.parents, again.memory) == ("reset", (), None) and again.id > first.id
            assert np.array_equal(again.weights, first.weights) and np.array_equal(again.genes, first.genes)
    former = evolver.policies.by_number[evolver.agents[1].policy]
    assert not np.array_equal(first.genes, former.genes) and first.weights[0] > 3


def test_the_oldest_snapshots_leave_and_their_policies_with_them() -> None:
    evolver = agents(capacity=2, longest=20, opponents=2)
    slices(evolver, lambda agent, other: 1.0, 12)
    assert len(evolver.snapshots) == 2 and len(evolver.kept) == 2
    playing = {policy for match in evolver.policies.matches.values() for _, policy, _ in match}
    assert {*evolver.policies.by_number} == playing | {one.policy for one in (*evolver.agents, *evolver.snapshots)}
    assert len(evolver.payoffs.state_dict()["pairs"]) <= 5 * 4
    assert max(len(match) for match in evolver.policies.matches.values()) <= 2


def test_the_leader_is_the_main_agent_that_beats_most_snapshots() -> None:
    evolver = agents(population=4, longest=1000, promote=1.0)
    assert evolver.leader is None
    slices(evolver, lambda agent, other: 0.5 * (agent != 0), 3)  # an exploiter does as well, but does not count
    leader = evolver.leader
    assert leader is not None and leader.individual.id == 9
    assert evolver.score(leader) > 0.4 > evolver.score(evolver.population[0])


# ------------------------------------------------------------------ rock, paper, scissors

BEATS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])


def strategy(weights: np.ndarray) -> np.ndarray:
    return np.exp(weights) / np.exp(weights).sum()


def learned(weights: np.ndarray, met: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A step of the policy gradient against the mixture that ``met`` tells."""
    own = strategy(weights)
    gain = BEATS @ met(weights)
    return weights + 0.3 * own * (gain - own @ gain)


def exploitability(mixture: np.ndarray) -> float:
    return float((BEATS @ mixture).max())


def test_self_play_runs_in_circles() -> None:
    weights, found = np.array([2.0, 0, 0]), []
    for _ in range(600):
        weights = learned(weights, strategy)
        found.append(strategy(weights))
    answers = [int((BEATS @ one).argmax()) for one in found]
    assert [move for move, before in zip(answers, [None, *answers], strict=False) if move != before] == 3 * [1, 2, 0]
    assert min(map(exploitability, found[-200:])) > 0.25


def test_a_league_of_the_same_learners_comes_near_the_equilibrium() -> None:
    """The mean of its main agents over time, the last one of them, and the Nash mixture of all snapshots."""
    space = Space(weights=3, fresh=lambda number: np.array([2, 0, 0], np.float32))
    evolver = League(train_steps=10, snapshot=20, longest=40).evolver(space, 1)

    def after_slice(one: Individual) -> Evaluation:
        others, weights = evolver.opponents(one.id), one.weights
        assert weights is not None

        def met(own: np.ndarray) -> np.ndarray:
            theirs = [own if other.policy is None else other.policy.weights for other in others]
            return np.sum([other.chance * strategy(w) for other, w in zip(others, theirs, strict=True)], 0)

        for _ in range(10):
            weights = learned(weights, met)
        last = [weights if other.policy is None else other.policy.weights for other in others]
        points = [(1 + np.sign(strategy(weights) @ BEATS @ strategy(w))) / 2 for w in last]
        games = {"opponents": [other.number for other in others], "points": points}
        return Evaluation(one._replace(weights=weights.astype(np.float32), memory={"games": games}), (0.0,))

    def mains() -> list[np.ndarray]:
        policies = evolver.policies.by_number
        return [strategy(policies[one.policy].weights) for one in evolver.snapshots if one.role == "main"]

    means = []
    for rounds in (20, 130):
        for _ in range(rounds):
            evolver.tell([after_slice(one) for one in evolver.ask()])
        means.append(exploitability(np.mean(mains(), 0)))
    assert means[1] < 0.08 < 0.2 < means[0]
    assert exploitability(mains()[-1]) < 0.08
    kept = np.array([strategy(one.weights) for one in evolver.kept])
    assert exploitability(nash(kept @ BEATS @ kept.T)[0] @ kept) < 1e-6
