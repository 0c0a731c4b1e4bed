"""Games of OpenSpiel: turns, chance, simultaneous moves, and what the library itself says of an episode."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import QUICK, fingerprint, go

from evorl.mdp import check
from evorl.mdp.core import Array, Step
from evorl.mdp.openspiel import OpenSpiel
from evorl.mdp.openspiel.equilibrium import Policy, mixed, nash_conv, nash_conv_of, table
from evorl.mdp.turns import TurnBattle
from evorl.record import checkpoint
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator

pyspiel = pytest.importorskip("pyspiel", reason="the extra openspiel is missing, which `make setup` installs")

KUHN, LEDUC, TIC_TAC_TOE = (OpenSpiel(game=game) for game in ("kuhn_poker", "leduc_poker", "tic_tac_toe"))
GOOFSPIEL = OpenSpiel(game="goofspiel", kwargs={"num_cards": 4})
RPS = OpenSpiel(game="matrix_rps")
KUHN_3 = OpenSpiel(game="kuhn_poker", kwargs={"players": 3})
WORLDS = {
    "kuhn": KUHN, "leduc": LEDUC, "tic-tac-toe": TIC_TAC_TOE, "goofspiel": GOOFSPIEL, "rock-paper-scissors": RPS,
    "kuhn of three": KUHN_3, "blackjack": OpenSpiel(game="blackjack"),
}  # fmt: skip
Record = list[tuple[Array, Array, Step]]  # what a side saw, and which actions were legal, and what came of its action


async def play(battle: TurnBattle, draws: list[Callable[[Array], int]]) -> list[Record]:
    """Play an episode; side s takes draws[s] of its legal actions."""

    async def side(seat: int) -> Record:
        controller, record = battle.controllers[seat], []
        while not record or not record[-1][2].over:
            seen, legal = controller.state
            assert legal is not None
            step = await controller(np.array([draws[seat](np.flatnonzero(legal))]))
            record.append((seen[0].copy(), legal.copy(), step))
        return record

    async with battle:
        return list(await asyncio.gather(*[side(seat) for seat in range(len(battle.controllers))]))


def at_random(*words: int | str) -> Callable[[Array], int]:
    draw = generator(*words)
    return lambda legal: int(draw.choice(legal))


def episode(world: OpenSpiel, key: int, noise: int = 0) -> tuple[TurnBattle, list[Record]]:
    """An episode in which all sides of the caller play at random."""
    battle = world.reset(*world.players(key), seed=key)
    return battle, asyncio.run(play(battle, [at_random(noise, side) for side in range(world.sides)]))


@pytest.mark.slow_cases(
    but=(
        "kuhn of three-self",
        "leduc-random",
        "goofspiel-self",
        "rock-paper-scissors-random",
        "tic-tac-toe-self",
        "blackjack-random",
        "kuhn-self",
    )
)  # each game once
@pytest.mark.parametrize("opponent", ["self", "random"])
@pytest.mark.parametrize("name", WORLDS)
def test_conformance(name: str, opponent: Any) -> None:
    world = replace(WORLDS[name], opponent=opponent)
    without_chance = name in ("tic-tac-toe", "rock-paper-scissors") and opponent == "self"
    check(world, slots=2 * world.sides, decisions=30, varied=not without_chance)


@pytest.mark.parametrize("name", WORLDS)
def test_returns_are_the_librarys(name: str) -> None:
    world = WORLDS[name]
    for key in range(0, 60, 2):
        battle, records = episode(world, key, noise=key)
        again, moves = pyspiel.load_game(world.game, dict(world.kwargs)).new_initial_state(), 0
        taken = battle.game.history.history()  # actions of chance and sides; in a simultaneous move those of each side
        while taken:
            moves += not again.is_chance_node()
            together = again.is_simultaneous_node()
            again.apply_actions(taken[: world.sides]) if together else again.apply_action(taken[0])
            taken = taken[world.sides if together else 1 :]
        assert again.is_terminal()
        for side, record in enumerate(records):
            assert sum(float(step.reward[0]) for *_, step in record) == pytest.approx(again.returns()[side])
            assert battle.controllers[side].result()["fitness"] == again.returns()[side]
            assert sum(step.cost for *_, step in record) == moves
            assert [step.terminated for *_, step in record] == [False] * (len(record) - 1) + [True]


def test_a_side_sees_its_own_information_state() -> None:
    """At every decision that is its own; the one that it has no choice in shows the deal."""
    battle, records = episode(LEDUC, 4)
    history = LEDUC.loaded.game.new_initial_state()
    seen: list[list[Any]] = [[], []]
    for one in battle.game.history.full_history():
        if not history.is_chance_node():
            if not any(seen):
                seen[1].append(history.information_state_tensor(1))
            seen[history.current_player()].append(history.information_state_tensor(history.current_player()))
        history.apply_action(one.action)
    assert [len(each) for each in seen] == [len(record) for record in records]
    for theirs, record in zip(seen, records, strict=True):
        np.testing.assert_array_equal(np.float32(theirs), np.stack([inputs for inputs, *_ in record]))


def test_who_does_not_begin_has_one_decision_without_a_choice() -> None:
    for key in range(0, 40, 2):
        _, records = episode(TIC_TAC_TOE, key, noise=key)
        assert records[0][0][1].sum() == 9 and records[1][0][1].tolist() == [True] + [False] * 8
        assert records[1][1][1].sum() == 8


def test_a_side_that_never_decides_learns_of_the_end() -> None:
    _, records = episode(OpenSpiel(game="nim", kwargs={"pile_sizes": "1"}), 0)  # who begins takes all
    assert [len(record) for record in records] == [1, 1]
    assert [float(record[0][2].reward[0]) for record in records] == [-1, 1] and records[1][0][2].terminated


def test_chance_is_drawn_from_the_key_alone() -> None:
    deals: Counter[tuple[int, ...]] = Counter()
    for key in range(0, 1200, 2):
        np.random.seed(key)  # the global one, which must not matter
        deals[tuple(KUHN.reset(0, 1, seed=key).game.history.history())] += 1
    assert len(deals) == 6 and all(60 <= count <= 140 for count in deals.values())
    assert KUHN.reset(0, 1, seed=8).game.history.history() == KUHN.reset(1, seed=8).game.history.history()[:2]


def test_simultaneous_moves_are_secret() -> None:
    async def scene() -> None:
        async with RPS.reset(0, 1, seed=0) as battle:
            rock, other = battle.controllers
            before = other.state.inputs[0].copy()
            first = asyncio.ensure_future(rock(np.array([0])))
            await asyncio.sleep(0)
            assert not first.done() and np.array_equal(other.state.inputs[0], before)
            step = await other(np.array([1]))
            assert step.reward == 1 and (await first).reward == -1 and step.cost == 1

    asyncio.run(scene())


def test_nobody_acts_out_of_turn_or_against_the_rules() -> None:
    async def scene() -> None:
        async with TIC_TAC_TOE.reset(0, 1, seed=0) as battle:
            first, second = battle.controllers
            waiting = asyncio.ensure_future(second(np.array([5])))
            moving = asyncio.ensure_future(first(np.array([4])))
            await waiting
            with pytest.raises(ValueError, match="action 4 of side 1 is not legal"):
                await second(np.array([4]))
            with pytest.raises(RuntimeError, match="not its turn"):
                await battle.act(0, np.array([0]))
            moving.cancel()

    asyncio.run(scene())


def test_other_sides_play_at_random() -> None:
    """Uniformly, from a stream of their own: chance is the same whoever plays."""
    actions: Counter[int] = Counter()
    for key in range(0, 800, 2):
        battle = KUHN.reset(1, seed=key)
        actions[battle.game.history.history()[2]] += 1
    assert len(actions) == 2 and min(actions.values()) > 160


def test_results() -> None:
    for key in range(0, 40, 2):
        battle, _ = episode(KUHN_3, key, noise=key)
        results = [controller.result() for controller in battle.controllers]
        returns = [result["fitness"] for result in results]
        assert sum(returns) == 0 and [result["win"] for result in results] == [one == max(returns) for one in returns]
    drawn = next(battle for key in range(0, 200, 2) if (battle := episode(TIC_TAC_TOE, key, key)[0]).game.total(0) == 0)
    assert drawn.controllers[0].result() == {"fitness": 0.0, "win": 0.5}
    alone, _ = episode(OpenSpiel(game="catch"), 0)
    assert set(alone.controllers[0].result()) == {"fitness"}


def test_who_plays_which_side() -> None:
    assert KUHN.sides == 2 and KUHN_3.sides == 3 and OpenSpiel(game="catch").sides == 1
    judged = KUHN_3.evaluation_world()
    keys = Episodes(0)(np.arange(300), 0)
    assert Counter(judged.players(int(key)) for key in keys).keys() == {(0,), (1,), (2,)}
    assert KUHN_3.one_side(2).players(0) == (2,) and KUHN_3.one_side(2).all_sides() == KUHN_3
    with pytest.raises(BadRequest, match="catch has one side, so no opponent"):
        OpenSpiel(game="catch").all_sides()


# ------------------------------------------------------------------ equilibria


def uniform(inputs: tuple[Array, ...], legal: Array) -> Array:
    return legal / legal.sum(1, keepdims=True)


def kuhn(bets: dict[str, Sequence[float]]) -> Policy:
    """How likely a side bets with jack, queen and king, by the moves before (p: pass, b: bet)."""

    def policy(inputs: tuple[Array, ...], legal: Array) -> Array:
        rows = []
        for one in inputs[0]:
            card, history = int(one[2:5].argmax()), one[5:].reshape(3, 2)
            chance = bets["".join("pb"[int(move.argmax())] for move in history if move.any())][card]
            rows.append([1 - chance, chance])
        return np.array(rows)

    return policy


EQUILIBRIUM = kuhn({"": (0, 0, 0), "p": (1 / 3, 0, 1), "b": (0, 1 / 3, 1), "pb": (0, 1 / 3, 1)})
"""Of Kuhn 1950, the one with alpha = 0."""


def test_nash_conv_of_known_policies() -> None:
    assert nash_conv(KUHN, [uniform]) == pytest.approx(11 / 12)
    assert nash_conv(LEDUC, [uniform]) == pytest.approx(4.747222222222222)
    assert nash_conv(KUHN, [EQUILIBRIUM]) == pytest.approx(0, abs=1e-12)
    assert nash_conv(KUHN_3, [uniform]) > 1


def test_a_mixture_is_of_games_not_of_decisions() -> None:
    """Who passed at first has drawn the policy that always passes."""
    passes, bets = (kuhn(dict.fromkeys(("", "p", "b", "pb"), [chance] * 3)) for chance in (0, 1))
    both = kuhn({"": [0.5] * 3, "p": [0.5] * 3, "b": [0.5] * 3, "pb": [0] * 3})
    assert nash_conv(KUHN, [passes, bets]) == pytest.approx(nash_conv(KUHN, [both]))
    assert nash_conv(KUHN, [bets, bets]) == pytest.approx(nash_conv(KUHN, [bets]))


@pytest.mark.slow_cases("leduc")
@pytest.mark.parametrize("world", [KUHN, LEDUC, KUHN_3], ids=["kuhn", "leduc", "kuhn of three"])
def test_mixtures_of_the_sides_are_those_of_openspiel(world: OpenSpiel) -> None:
    from open_spiel.python.algorithms import exploitability, policy_aggregator

    rng, game = np.random.default_rng(0), world.loaded.game
    sides = range(game.num_players())

    def drawn(inputs: tuple[Array, ...], legal: Array) -> Array:
        x = legal * rng.gamma(0.3, size=legal.shape) + 1e-6 * legal
        return x / x.sum(1, keepdims=True)

    tables = [table(world, drawn) for _ in range(3)]
    mixtures = [rng.dirichlet(np.ones(3)).tolist() for _ in sides]
    theirs = policy_aggregator.PolicyAggregator(game).aggregate(sides, [tables] * len(sides), mixtures)
    ours = mixed(tables, mixtures)
    for state in ours.states:
        assert ours.action_probabilities(state) == pytest.approx(theirs.action_probabilities(state), abs=1e-9)
    assert nash_conv_of(tables, mixtures) == pytest.approx(exploitability.nash_conv(game, theirs), abs=1e-9)


def test_what_has_no_table_is_refused() -> None:
    with pytest.raises(BadRequest, match="goofspiel has simultaneous moves"):
        table(GOOFSPIEL, uniform)
    with pytest.raises(BadRequest, match="a policy that forgets has no table"):
        table(replace(KUHN, observe="observation"), uniform)


# ------------------------------------------------------------------ runs


@pytest.mark.slow
@pytest.mark.parametrize("words", [("opponents=none",), ("opponents=pfsp", "opponents.snapshot=256")], ids="".join)
def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(words: tuple[str, ...], tmp_path: Path) -> None:
    own = (*QUICK, "mdp=openspiel", "mdp.game=leduc_poker", *words)
    assert go(*own, "budget.steps=1200", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    assert go(*own, "budget.steps=600", f"hydra.run.dir={tmp_path / 'part'}") == 0
    stop = checkpoint.steps(tmp_path / "part")[-1]  # where it was evaluated, as the other was not
    assert go(f"resume={tmp_path / 'part'}", "budget.steps=1200") == 0
    assert fingerprint(tmp_path / "whole", aside=[stop]) == fingerprint(tmp_path / "part", aside=[stop])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mdp.game=leduc_pokr"], "mdp.game: OpenSpiel has no game leduc_pokr; did you mean leduc_poker?"),
        (["mdp.game=leduc_poker", "+mdp.kwargs.playrs=3"], "mdp.kwargs.playrs: leduc_poker has no parameter playrs; d"),
        (["mdp.game=kuhn_poker", "+mdp.kwargs.players=77"], "mdp.kwargs: kuhn_poker cannot be made: num_players_ <= "),
        (["mdp.game=negotiation"], "mdp.game: negotiation draws its chance itself, so no key could repeat"),
        (["mdp.game=mfg_garnet"], "mdp.game: mfg_garnet is a mean-field game"),
        (["mdp.game=cribbage"], "mdp.game: cribbage has no observation as numbers"),
        (
            ["mdp.game=tic_tac_toe", "mdp.observe=information_state"],
            "mdp.observe: tic_tac_toe has no information_state",
        ),
        (["mdp.game=kuhn_poker", "mdp.side=1"], "mdp.side: 1 contradicts opponent=self"),
        (["mdp.game=kuhn_poker", "mdp.opponent=random", "mdp.side=2"], "mdp.side: kuhn_poker has the sides 0 to 1, no"),
        (["mdp.game=kuhn_poker", "mdp.frame_skip=2"], "mdp.frame_skip: a game in turns has no frames"),
        (["mdp.game=catch", "opponents=self"], "opponents: catch has one side, so no opponent"),
    ],
)
def test_what_is_refused(words: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert go("mdp=openspiel", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capfd.readouterr().err
    assert said.startswith(f"evorl: {text}"), said
    assert said.count("\n") == 1 and not (tmp_path / "run").exists()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.openspiel.loading.find_spec", lambda name: None)
    with pytest.raises(BadRequest, match=r"kuhn_poker needs more than is installed: .* -e '\.\[openspiel\]'"):
        KUHN.ready()


def games_played() -> int:
    """Play a little of every game that is not refused; return how many there are."""
    played = 0
    for kind in pyspiel.registered_games():
        world = OpenSpiel(game=kind.short_name)
        try:
            world.ready()
        except BadRequest as error:
            assert error.key in ("game", "kwargs"), error
            continue
        check(replace(world, opponent="random"), slots=1, decisions=3, varied=False)
        played += 1
    return played


@pytest.mark.slow
def test_every_game_of_the_library_is_played_or_refused(elsewhere: Callable[[str], str]) -> None:
    """In a process of its own: others may have imported games that are written in Python."""
    assert int(elsewhere("games_played()").splitlines()[-1]) > 90


@pytest.mark.learn
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_self_play_comes_near_an_equilibrium_of_kuhn_poker(seed: int, tmp_path: Path) -> None:
    """Random play has 0.917; this gets to 0.20 to 0.24, and with a small entropy bonus back to 0.5 and 0.8."""
    from benchmarks.openspiel.nash_conv import distances

    rl = ("rl.gamma=1", "rl.entropy_coef=0.2", "rl.passes=2", "rl.lr=1e-3", "rl.slots=64", "rl.horizon=32")
    kept = ("rl.minibatch=512", "checkpoint.every=10000", "checkpoint.keep=20", "eval.every=0")
    words = ("mdp=openspiel", "mdp.game=kuhn_poker", *rl, *kept, "budget.steps=100000", f"seed={seed}")
    assert go(*words, f"hydra.run.dir={tmp_path / 'run'}") == 0
    *_, last = distances(tmp_path / "run")
    assert last.policy < 0.4 and last.mixture < 0.4
