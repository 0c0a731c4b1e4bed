"""The duel: its rules one by one, its balance, its view."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace

import numpy as np
import pytest
from harness import go
from hypothesis import given, settings
from hypothesis import strategies as st

from evorl.mdp.duel import Duel
from evorl.mdp.duel.characters import Archer, Ground, Knight, Skill
from evorl.mdp.duel.observation import heading, observe
from evorl.mdp.duel.rule_player import Command, random_command, rule_command
from evorl.mdp.duel.rules import (
    ARCHER,
    BLOCK,
    CHARGE,
    DIRECTIONS,
    KNIGHT,
    ROLL,
    SHOOT,
    SKILLS,
    STEP,
    STRIKE,
    VOLLEY,
    WAIT,
    Fight,
    Vector,
)  # fmt: skip
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator

EAST, NORTH, WEST, SOUTH = DIRECTIONS[::2]
Player = Callable[[Fight, int, np.random.Generator], Command]


def fight(gap: float = 1.2, y: float = 2.0, knight: Knight | None = None, archer: Archer | None = None) -> Fight:
    """The knight west of the archer, both south of the pillar."""
    it = Fight(knight or Knight(), archer or Archer(), Ground(), seed=0)
    for me, x in zip(it.fighters, (3.0, 3.0 + gap), strict=True):
        me.x, me.y = x, y
    return it


def until_free(it: Fight, side: int) -> None:
    """Time passes, the other one waiting, until the side is free."""
    while it.fighters[side].left and not it.over:
        if not it.fighters[1 - side].left:
            it.command(1 - side, WAIT, EAST)
        it.advance()


def do(it: Fight, side: int, skill: int, heading: Vector) -> None:
    until_free(it, side)
    it.command(side, skill, heading)
    until_free(it, side)


# ------------------------------------------------------------------ skills


@pytest.mark.parametrize(("gap", "heading", "hits"), [(1.2, EAST, 1), (1.2, WEST, 1), (1.9, EAST, 1), (2.4, EAST, 0)])
def test_a_strike_hits_within_range_at_the_end_of_its_cast(gap: float, heading: Vector, hits: int) -> None:
    it = fight(gap)
    do(it, KNIGHT, STRIKE, heading)
    assert it.fighters[ARCHER].taken == hits * it.knight.strike.damage == it.fighters[KNIGHT].dealt
    strafed = it.knight.strafe * it.knight.step.range * it.knight.strike.cast / it.knight.step.cast
    assert it.fighters[KNIGHT].x == pytest.approx(3 + strafed * heading[0], abs=0.41 if hits else 1e-6)


def test_casting_takes_its_time_and_then_cools_down() -> None:
    it = fight()
    it.command(KNIGHT, STRIKE, EAST)
    with pytest.raises(ValueError, match="side 0 cannot use skill 0"):
        it.command(KNIGHT, WAIT, EAST)
    until_free(it, KNIGHT)
    assert it.tick == round(it.knight.strike.cast / it.ground.dt)
    assert not it.legal(KNIGHT)[STRIKE]
    with pytest.raises(ValueError, match="cannot use skill 2"):
        it.command(KNIGHT, STRIKE, EAST)
    while not it.legal(KNIGHT)[STRIKE]:
        do(it, KNIGHT, WAIT, EAST)
    ready = (it.knight.strike.cast + it.knight.strike.cooldown) / it.ground.dt
    assert ready <= it.tick < ready + it.knight.wait.cast / it.ground.dt


def test_energy_is_spent_and_comes_back() -> None:
    it = fight(4)
    me = it.fighters[KNIGHT]
    do(it, KNIGHT, CHARGE, WEST)
    gained = it.knight.regeneration * it.tick * it.ground.dt
    assert me.energy == pytest.approx(it.knight.energy - it.knight.charge.energy + gained)
    me.energy = 0.0
    assert it.legal(KNIGHT) == [True, True, False, False, False]
    for _ in range(60):
        do(it, KNIGHT, WAIT, EAST)
    assert me.energy == it.knight.energy


def test_a_step_moves_as_far_as_it_says_and_walls_stop_it() -> None:
    it = fight(4)
    do(it, ARCHER, STEP, NORTH)
    assert (it.fighters[ARCHER].x, it.fighters[ARCHER].y) == pytest.approx((7, 2 + it.archer.step.range))
    for _ in range(30):
        do(it, ARCHER, STEP, EAST)
    assert it.fighters[ARCHER].x == pytest.approx(it.ground.size - it.ground.body)


def test_a_charge_stops_at_its_opponent_and_hits_once() -> None:
    it = fight(3)
    do(it, KNIGHT, CHARGE, EAST)
    assert it.fighters[ARCHER].taken == it.knight.charge.damage
    assert 2 * it.ground.body - 1e-9 <= it.distance() <= 2 * it.ground.body + 0.31


def test_an_arrow_flies_and_the_shield_takes_most_of_it() -> None:
    it = fight(4)
    do(it, ARCHER, SHOOT, WEST)
    assert len(it.arrows) == 1 and it.fighters[KNIGHT].taken == 0
    while it.arrows:
        do(it, ARCHER, WAIT, EAST)
    assert it.fighters[KNIGHT].taken == it.archer.shoot.damage
    it = fight(2)
    it.command(KNIGHT, BLOCK, EAST)
    it.command(ARCHER, SHOOT, EAST)
    until_free(it, KNIGHT)
    assert it.fighters[KNIGHT].taken == pytest.approx(it.archer.shoot.damage * (1 - it.knight.absorbed))


def test_an_arrow_hits_a_straight_walker_and_misses_after_a_turn() -> None:
    for turns, taken in ((False, True), (True, False)):
        it = fight(5)
        it.command(ARCHER, SHOOT, EAST)
        until_free(it, ARCHER)
        it.command(ARCHER, WAIT, EAST)
        until_free(it, KNIGHT)
        it.arrows.clear()
        me = it.fighters[KNIGHT]
        me.moved = (0.0, 0.25)
        it._shoot_arrow(it.fighters[ARCHER], SHOOT, 0.0)
        while it.arrows:
            if not me.left:
                it.command(KNIGHT, STEP, SOUTH if turns else NORTH)
            if not it.fighters[ARCHER].left:
                it.command(ARCHER, WAIT, EAST)
            it.advance()
        assert (me.taken > 0) == taken


def test_a_volley_is_three_arrows() -> None:
    it = fight(1.5)
    do(it, ARCHER, VOLLEY, WEST)
    assert len(it.arrows) == 3
    angles = sorted(math.degrees(math.atan2(arrow.vy, -arrow.vx)) for arrow in it.arrows)
    assert angles == pytest.approx([-15, 0, 15], abs=1e-6)


def test_a_volley_may_have_any_arrows() -> None:
    for count, angle in ((1, 15.0), (4, 10.0)):
        it = fight(1.5, archer=Archer(volley_arrows=count, volley_angle=angle))
        do(it, ARCHER, VOLLEY, WEST)
        angles = sorted(math.degrees(math.atan2(arrow.vy, -arrow.vx)) for arrow in it.arrows)
        assert angles == pytest.approx([angle * (k - (count - 1) / 2) for k in range(count)], abs=1e-6)


def test_how_far_a_charge_and_an_arrow_reach() -> None:
    for reach in (0.0, 1.5):
        it = fight(3, knight=Knight(charge_reach=reach))
        it.command(KNIGHT, CHARGE, EAST)
        it.command(ARCHER, WAIT, EAST)
        while not it.fighters[ARCHER].taken:
            it._pass_tick()
        assert it.distance() <= 2 * it.ground.body + reach + 1e-9
        assert (it.distance() > 2 * it.ground.body + 0.3) == (reach > 0.3)
    for radius, taken in ((0.1, False), (1.0, True)):
        it = fight(3, archer=Archer(arrow_radius=radius))
        it._shoot_arrow(it.fighters[ARCHER], SHOOT, 0.0)
        it.fighters[KNIGHT].y += 1.2  # beside the body, not beside a wide arrow
        while it.arrows:
            it._pass_tick()
        assert (it.fighters[KNIGHT].taken > 0) == taken


def test_a_roll_prevents_damage() -> None:
    it = fight(1.2)
    it.command(KNIGHT, STRIKE, EAST)
    it.command(ARCHER, ROLL, WEST)
    it.advance()
    assert it.fighters[ARCHER].taken == 0
    assert it.fighters[ARCHER].x == pytest.approx(4.2 - it.archer.roll.range)  # past the knight


def test_the_pillar_stops_arrows_and_walkers() -> None:
    it = fight()
    for me, x in zip(it.fighters, (2.0, 8.0), strict=True):
        me.x, me.y = x, 5.0
    assert not it.line_is_clear()
    do(it, ARCHER, SHOOT, WEST)
    while it.arrows:
        do(it, ARCHER, WAIT, EAST)
    assert it.fighters[KNIGHT].taken == 0
    for _ in range(20):
        do(it, KNIGHT, STEP, EAST)
    assert it.fighters[KNIGHT].x == pytest.approx(5 - it.ground.pillar - it.ground.body)


def test_both_may_die_at_once() -> None:
    it = fight(0.9)
    knight, archer = it.fighters
    knight.health = archer.health = 1.0
    it.command(ARCHER, SHOOT, WEST)
    it.command(KNIGHT, WAIT, EAST)
    it.advance()
    it.command(KNIGHT, STRIKE, EAST)  # ends in the tick in which the arrow arrives
    until_free(it, KNIGHT)
    assert it.terminated and knight.health == archer.health == 0 and knight.taken == archer.taken == 1


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_fighters_stay_in_the_field(seed: int) -> None:
    it, draws = Fight(Knight(), Archer(), Ground(), seed), [generator("test", seed, side) for side in (0, 1)]
    low, high = it.ground.body - 1e-9, it.ground.size - it.ground.body + 1e-9
    while not it.over:
        for side, me in enumerate(it.fighters):
            assert low <= me.x <= high and low <= me.y <= high
            assert math.hypot(me.x - 5, me.y - 5) >= it.ground.pillar + it.ground.body - 1e-9
            assert 0 <= me.energy <= me.character.energy and me.health <= me.character.health
            view = observe(it, side)
            assert np.isfinite(view).all() and np.abs(view).max() <= 1.5
            if not me.left:
                it.command(side, *(random_command if seed % 2 else rule_command)(it, side, draws[side]))
        it.advance()
    assert it.fighters[0].dealt == pytest.approx(it.fighters[1].taken)


# ------------------------------------------------------------------ the view

AXIS = slice(4, 6)  # of an observation: which way the field lies, as the fighter sees it


def quarter(it: Fight) -> None:
    """Turn the whole fight to the left."""
    half = it.ground.size / 2
    for each in (*it.fighters, *it.arrows):
        each.x, each.y = half - (each.y - half), half + (each.x - half)
        each.vx, each.vy = -each.vy, each.vx
    for me in it.fighters:
        me.heading = -me.heading[1], me.heading[0]


@pytest.mark.parametrize("side", [KNIGHT, ARCHER])
def test_a_rotated_fight_has_the_same_observations(side: int) -> None:
    it = fight(3.5)
    it.fighters[KNIGHT].y = 2.7
    it.command(KNIGHT, STEP, NORTH)
    it.command(ARCHER, SHOOT, WEST)
    until_free(it, ARCHER)
    assert len(it.arrows) == 1
    view, axis = np.delete(observe(it, side), AXIS), observe(it, side)[AXIS]
    ways = [heading(it, side, direction) for direction in range(len(DIRECTIONS))]
    quarter(it)
    assert np.delete(observe(it, side), AXIS) == pytest.approx(view, abs=1e-6)
    assert observe(it, side)[AXIS] == pytest.approx([-axis[1], axis[0]], abs=1e-6)
    for direction, (x, y) in enumerate(ways):
        assert heading(it, side, direction) == pytest.approx((-y, x))


@pytest.mark.parametrize("side", [KNIGHT, ARCHER])
def test_direction_0_is_straight_at_the_foe_and_the_others_follow_leftwards(side: int) -> None:
    it = fight(3)
    it.fighters[ARCHER].y = 3.1
    gap, pace = it.distance(), it.fighters[side].character.step.range
    do(it, side, STEP, heading(it, side, 0))
    assert it.distance() == pytest.approx(gap - pace)
    (ax, ay), (bx, by), (cx, cy) = (heading(it, side, direction) for direction in (0, 2, 4))
    assert (bx, by) == pytest.approx((-ay, ax)) and (cx, cy) == pytest.approx((-ax, -ay))


# ------------------------------------------------------------------ balance


def wins(players: tuple[Player, Player], games: int) -> float:
    """The knight's share of wins, a draw counting half."""
    total = 0.0
    for seed in range(games):
        it, draws = Fight(Knight(), Archer(), Ground(), seed), [generator("balance", seed, side) for side in (0, 1)]
        while not it.over:
            for side in (KNIGHT, ARCHER):
                if not it.fighters[side].left:
                    it.command(side, *players[side](it, side, draws[side]))
            it.advance()
        dead = [me.health <= 0 for me in it.fighters]
        total += 0.5 + 0.5 * (dead[ARCHER] - dead[KNIGHT])
    return total / games


def test_the_rule_players_are_about_even() -> None:
    assert 0.4 <= wins((rule_command, rule_command), 300) <= 0.6


def test_random_players_lose() -> None:
    assert wins((random_command, rule_command), 60) < 0.15
    assert wins((rule_command, random_command), 60) > 0.85


# ------------------------------------------------------------------ as a world


def played(world: Duel, slots: int, decisions: int) -> tuple[list[tuple[int, dict[str, float]]], np.ndarray, int]:
    """Results, summed rewards [B, 2] and costs of random play."""
    draw, results, total, cost = np.random.default_rng(0), [], np.zeros((slots, 2)), 0
    with closing(world.arena(slots, Episodes(3))) as arena:
        for _ in range(decisions):
            now = arena.recv()
            results += now.results
            cost += now.cost
            total[now.slots] += now.reward[now.slots]
            assert now.legal is not None
            legal = now.legal[now.slots, : len(SKILLS)]
            skills = (draw.random(legal.shape) * legal).argmax(1)
            arena.send(now.slots, np.stack([skills, draw.integers(0, len(DIRECTIONS), len(skills))], 1))
    return results, total, cost


def test_each_side_decides_in_its_own_time() -> None:
    with closing(Duel(side="both").arena(2, Episodes(0))) as arena:
        first = arena.recv()
        assert first.inputs[0].shape == (2, len(observe(fight(), 0)))
        arena.send(np.arange(2), np.array([[STRIKE, 0], [WAIT, 0]]))
        now = arena.recv()
        assert now.slots.tolist() == [1] and now.cost == 0  # steps are counted at the game's first side
        arena.send(np.array([1]), np.array([[WAIT, 0]]))
        now = arena.recv()
        assert now.slots.tolist() == [0, 1] and now.cost == 4  # 0.4 s of cast in ticks of 0.1 s


def test_results_and_rewards_agree() -> None:
    world = Duel(side="knight", ground=Ground(limit=20.0))
    results, total, cost = played(world, 8, 900)
    assert len(results) > 8 and cost > 8 * 900
    for _, result in results:
        assert result["win"] in (0.0, 0.5, 1.0)
        assert 0 <= result["fitness"] <= 1
        assert result["damage_taken"] <= world.knight.health + 1e-9
        assert result["damage_dealt"] <= world.archer.health + 1e-9
        assert 0 < result["seconds"] <= 20.0 + 1e-9
    taken = sum(result["damage_taken"] for _, result in results) / world.knight.health
    dealt = sum(result["damage_dealt"] for _, result in results) / world.archer.health
    # the running episodes, not in results, add at most one lost health each
    assert dealt - taken - 8 <= total[:, 0].sum() <= dealt - taken + 8
    lost = sum(result["win"] == 0 for _, result in results) - sum(result["win"] == 1 for _, result in results)
    assert total[:, 1].sum() == -lost


def test_time_out_is_a_truncated_draw() -> None:
    with closing(Duel(side="both", ground=Ground(limit=1.0)).arena(2, Episodes(0))) as arena:
        now = arena.recv()
        for _ in range(5):
            assert not now.truncated.any()
            arena.send(np.arange(2), np.zeros((2, 2), np.int64))
            now = arena.recv()
        assert now.truncated.all() and not now.terminated.any()
        assert [result["win"] for _, result in now.results] == [0.5, 0.5]
        assert [result["fitness"] for _, result in now.results] == [0.5, 0.5]
        assert (now.final[0][:, -2] == 0).all()  # no time was left


def test_sides() -> None:
    keys = [int(key) for key in Episodes(0)(np.arange(200), 0)]
    both = [Duel().players(key) for key in keys]
    assert 70 < both.count((KNIGHT,)) < 130 and both.count((KNIGHT,)) + both.count((ARCHER,)) == 200
    assert Duel(side="knight").players(1) == (KNIGHT,) and Duel(side="archer").players(1) == (ARCHER,)
    assert Duel(side="both").evaluation_world() == Duel(side="random")
    assert Duel(side="archer").evaluation_world() == Duel(side="archer")
    with closing(Duel().arena(50, Episodes(0))) as arena:
        who = arena.recv().inputs[0][:, :2]
        assert (who.sum(1) == 1).all() and 10 < who[:, 0].sum() < 40


def test_numbers_are_config() -> None:
    strong = replace(Knight(), strike=replace(Knight().strike, damage=500.0))
    results, _, _ = played(Duel(side="archer", knight=strong), 8, 300)
    assert results and all(result["win"] == 0 for _, result in results)


def test_it_draws_the_field() -> None:
    with closing(Duel().arena(2, Episodes(0))) as arena:
        arena.recv()
        first = arena.render(1)
        assert first is not None and first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3
        arena.send(np.arange(2), np.tile([STEP, 2], (2, 1)))
        arena.recv()
        assert (arena.render(1) != first).any()


def test_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no room around a pillar"):
        Ground(size=4.0, pillar=2.0)


def test_a_volley_has_so_many_arrows_as_memory_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert go("mdp=duel", "mdp.archer.volley_arrows=100000000") == 2
    assert capsys.readouterr().err == "evorl: mdp.archer.volley_arrows: expected int <= 1000, got 100000000\n"


@pytest.mark.parametrize("kind", [Knight, Archer])
def test_unused_numbers_of_skills_stay_zero(kind: type[Knight | Archer]) -> None:
    """Each other one may change, and what costs no energy and never cools down is always legal."""
    refused = set()
    for skill in (one.name for one in fields(kind) if one.type == "Skill"):
        for number in (one.name for one in fields(Skill) if one.name != "cast"):
            changed = replace(getattr(kind(), skill), **{number: 0.5})
            try:
                kind(**{skill: changed})
            except BadRequest as error:
                assert str(error) == f"{skill}.{number}: {skill} has no {number}; it stays 0, not 0.5"
                refused.add((skill, number))
    always = {("wait", "range"), *((skill, n) for skill in ("wait", "step") for n in ("cooldown", "energy", "damage"))}
    assert refused == always | ({("block", "range"), ("block", "damage")} if kind is Knight else {("roll", "damage")})
