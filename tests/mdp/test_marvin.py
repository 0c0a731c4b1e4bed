"""Marvin's body, senses, reward and ends against their description, and its manners as a world."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from evorl.mdp import check
from evorl.mdp.core import Array, Box, Input, Spec
from evorl.mdp.marvin.world import ID, LIMIT, Marvin
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

LEG = 34 / 30
START = 400 / 30 / 4  # where the ground begins, in metres
SQUAT = np.float32([0.5, -0.2, -0.5, -0.2])
STILL = np.zeros(4, np.float32)


@pytest.fixture
def env() -> Iterator[Any]:
    made = gymnasium.make(ID, disable_env_checker=True).unwrapped
    made.reset(seed=0)
    yield made
    made.close()


def parts(env: Any) -> list[Any]:
    return [env.body.trunk, *env.body.legs]


def shift(env: Any, x: float) -> None:
    """Put all of Marvin, as it stands, where its trunk is at x."""
    dx = x - env.body.trunk.position.x
    for part in parts(env):
        part.position = (part.position.x + dx, part.position.y)


def play(env: Any, seed: int, policy: Callable[[np.random.Generator], Array]) -> tuple[float, int]:
    """The return and the length of an episode."""
    draw, rewards, over = np.random.default_rng(seed), [], False
    env.reset(seed=seed)
    while not over and len(rewards) < LIMIT:
        _, reward, over, _, _ = env.step(policy(draw))
        rewards.append(reward)
    return sum(rewards), len(rewards)


# ------------------------------------------------------------------ the body


def test_masses_are_those_of_the_table(env: Any) -> None:
    masses = [part.mass for part in parts(env)]
    np.testing.assert_allclose(masses, [2.46, 0.270, 0.320, 0.270, 0.320], rtol=0.01)
    assert sum(masses) == pytest.approx(3.64, rel=0.005)
    assert {fixture.density for part in parts(env) for fixture in part.fixtures} == {0.5}
    trunk = env.body.trunk.fixtures
    assert len(trunk) == 7 and max(len(fixture.shape.vertices) for fixture in trunk) == 16


def test_joints_are_those_of_the_table(env: Any) -> None:
    from evorl.mdp.marvin.body import build, new_world

    world = new_world()
    body = build(world, 0.0, START)
    assert body.trunk.position.y == pytest.approx(START + 3 * LEG)
    for side, hip, knee, thigh, shin in (
        (-1, *body.joints[:2], *body.legs[:2]),
        (1, *body.joints[2:], *body.legs[2:]),
    ):
        assert (hip.bodyA, hip.bodyB, knee.bodyA, knee.bodyB) == (body.trunk, thigh, thigh, shin)
        limits = [bound for joint in (hip, knee) for bound in joint.limits]
        np.testing.assert_allclose(limits, [-0.8, 1.1, -1.6, -0.1], rtol=1e-6)
        assert (hip.motorSpeed, knee.motorSpeed) == (2 * side, 1)
        for joint, upper, lower in ((hip, -8 / 30, LEG / 2), (knee, -LEG / 3, LEG / 3)):
            assert joint.motorEnabled and joint.limitEnabled
            np.testing.assert_allclose(joint.bodyA.GetLocalPoint(joint.anchorA), [0, upper], atol=1e-5)
            np.testing.assert_allclose(joint.bodyB.GetLocalPoint(joint.anchorB), [0, lower], atol=1e-5)
        assert thigh.angle == shin.angle == pytest.approx(0.05 * side)


def test_marvin_collides_with_the_ground_only(env: Any) -> None:
    filters = {(f.filterData.categoryBits, f.filterData.maskBits) for part in parts(env) for f in part.fixtures}
    assert filters == {(0x20, 0x1)}
    (ground,) = [each for each in env._world.bodies if each not in parts(env)]
    assert len(ground.fixtures) == 199 and all(fixture.friction == 2.5 for fixture in ground.fixtures)


def test_the_drawn_shapes_are_convex_and_do_not_overlap() -> None:
    """Box2D takes a polygon's hull and adds masses up, so a dent or an overlap would change the mass unseen."""
    from evorl.mdp.marvin.body import FOOT, HEAD, SHIN, THIGH, TORSO

    for polygon in (*TORSO, HEAD, THIGH, SHIN, FOOT):
        edges = np.diff(np.array([*polygon, *polygon[:2]]), axis=0)
        turns = edges[:-1, 0] * edges[1:, 1] - edges[:-1, 1] * edges[1:, 0]
        assert (turns > 0).all() or (turns < 0).all()
    for lower, upper in pairwise(TORSO):
        assert max(y for _, y in lower) == min(y for _, y in upper)


def test_the_ground_is_level_at_first_and_then_uneven() -> None:
    from evorl.mdp.marvin.walker import terrain

    grounds = np.array([terrain(np.random.default_rng(seed)) for seed in range(50)])
    steps = np.diff(grounds, axis=1)
    assert grounds.shape == (50, 200) and (grounds[:, :21] == START).all()
    assert (np.abs(steps) < 0.25).all() and 0.02 < np.abs(steps[:, 25:]).mean() < 0.06
    level = [np.diff(np.flatnonzero(row == 0)) for row in steps[:, 20:]]
    assert {int(gap) for row in level for gap in row} == {5, 6, 7, 8, 9}  # columns as high as the one before them


# ------------------------------------------------------------------ what it sees, does and earns


def test_observations_are_the_described_numbers(env: Any) -> None:
    draw, contacts = np.random.default_rng(1), set()
    for _ in range(150):
        seen, _, over, _, _ = env.step(draw.uniform(-1, 1, 4).astype(np.float32))
        trunk, joints, legs = env.body.trunk, env.body.joints, env.body.legs
        vx, vy = trunk.linearVelocity
        wanted = [trunk.angle, 2 * trunk.angularVelocity / 50, 0.3 * vx * 20 / 50, 0.3 * vy * (400 / 30) / 50]
        for hip, knee, shin in ((*joints[:2], legs[1]), (*joints[2:], legs[3])):
            touching = any(edge.contact.touching for edge in shin.contacts)
            wanted += [hip.angle, hip.speed / 4, knee.angle + 1, knee.speed / 6, float(touching)]
        contacts.add((seen[8], seen[13]))
        assert seen.dtype == np.float32
        np.testing.assert_array_equal(seen[:14], np.float32(wanted))
        np.testing.assert_allclose(seen[14:], rays(env), atol=2e-5)
        if over:
            env.reset()
    assert len(contacts) > 1


def rays(env: Any) -> list[float]:
    """The ten distances, measured by Box2D."""
    import Box2D

    class Nearest(Box2D.b2RayCastCallback):
        def ReportFixture(self, fixture: Any, point: Any, normal: Any, fraction: float) -> float:
            if fixture.filterData.categoryBits != 1:
                return -1
            self.fraction = fraction
            return fraction

    x, y = env.body.trunk.position
    found = []
    for n in range(10):
        ray, angle, reach = Nearest(), 1.5 * n / 10, 160 / 30
        ray.fraction = 1.0
        env._world.RayCast(ray, (x, y), (x + math.sin(angle) * reach, y - math.cos(angle) * reach))
        found.append(ray.fraction)
    return found


@pytest.mark.parametrize("x", [0.3, 40.0, 86.0, 88.6])
def test_rays_see_the_ground_everywhere_and_nothing_behind_its_end(env: Any, x: float) -> None:
    shift(env, x)
    seen = env.step(STILL)[0]
    np.testing.assert_allclose(seen[14:], rays(env), atol=2e-5)


def test_rewards_are_the_described_numbers(env: Any) -> None:
    draw, worths = np.random.default_rng(2), []

    def worth() -> float:
        return 130 * env.body.trunk.position.x / 30 - 5 * abs(env.body.trunk.angle)

    worths.append(worth())
    for _ in range(40):
        action = draw.uniform(-2, 2, 4).astype(np.float32)
        _, reward, over, truncated, _ = env.step(action)
        worths.append(worth())
        assert reward == pytest.approx(worths[-1] - worths[-2] - 0.028 * np.minimum(np.abs(action), 1).sum())
        assert not over and not truncated


def test_motors_turn_the_way_of_the_action(env: Any) -> None:
    env.step(np.float32([0.5, -2.0, 0.0, 1.0]))
    joints = env.body.joints
    assert [joint.motorSpeed for joint in joints] == [4, -6, 0, 6]
    shift(env, 20.0)
    for part in parts(env):
        part.position = (part.position.x, part.position.y + 9)
        part.linearVelocity, part.angularVelocity = (0, 0), 0
    env.step(np.float32([0.01, 0.01, -0.01, -0.01]))  # so little that no joint comes to its speed
    np.testing.assert_allclose([joint.GetMotorTorque(50.0) for joint in joints], [0.8, 0.8, -0.8, -0.8], rtol=1e-5)


# ------------------------------------------------------------------ ends


def test_a_fall_ends_it_with_minus_100(env: Any) -> None:
    for _ in range(LIMIT):
        _, reward, over, truncated, _ = env.step(STILL)
        if over:
            break
    assert over and not truncated and reward == -100
    assert any(edge.contact.touching for edge in env.body.trunk.contacts)


def test_left_of_the_start_is_a_fall(env: Any) -> None:
    shift(env, 0.01)
    assert not env.step(STILL)[2]
    shift(env, -0.05)
    _, reward, over, truncated, _ = env.step(STILL)
    assert over and not truncated and reward == -100


def test_the_finish_ends_it_with_the_usual_reward(env: Any) -> None:
    shift(env, 190 * 14 / 30 - 0.05)
    _, far, over, _, _ = env.step(STILL)
    assert not over and far > 300  # all the way at once
    shift(env, 190 * 14 / 30 + 0.05)
    _, reward, over, truncated, _ = env.step(STILL)
    assert over and not truncated and reward == pytest.approx(130 * 0.1 / 30, abs=0.2)


def test_2000_steps_are_a_truncation() -> None:
    env = gymnasium.make(ID, disable_env_checker=True)
    env.reset(seed=3)
    ends = [env.step(SQUAT)[2:4] for _ in range(LIMIT)]
    assert LIMIT == 2000 and ends == [(False, False)] * 1999 + [(False, True)]


def test_zero_and_random_policies_do_as_badly_as_the_originals(env: Any) -> None:
    """-111 in about 130 steps, and -116."""
    zero = np.array([play(env, seed, lambda draw: STILL) for seed in range(20)])
    random = np.array([play(env, seed, lambda draw: draw.uniform(-1, 1, 4)) for seed in range(20)])
    assert zero[:, 0].mean() == pytest.approx(-111, abs=3) and zero[:, 1].mean() == pytest.approx(130, abs=25)
    assert random[:, 0].mean() == pytest.approx(-116, abs=8)


# ------------------------------------------------------------------ manners


def course(env: Any, seed: int, steps: int = 80) -> bytes:
    draw = np.random.default_rng(seed)
    rows = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        seen, reward, *_ = env.step(draw.uniform(-1, 1, 4).astype(np.float32))
        rows += seen, np.float32([reward])
    return b"".join(row.tobytes() for row in rows)


def fresh_course(seed: int) -> str:
    return course(gymnasium.make(ID, disable_env_checker=True).unwrapped, seed).hex()


def test_an_episode_is_its_seed_and_its_actions(env: Any, elsewhere: Callable[[str], str]) -> None:
    first = course(env, 5)
    assert course(env, 6) != first
    assert course(env, 5) == first  # whatever was played before
    assert elsewhere("fresh_course(5)") == first.hex()


@pytest.mark.slow
def test_episodes_leave_no_memory_behind(env: Any) -> None:
    def pages() -> int:
        for seed in range(150):
            env.reset(seed=seed)
        return int(Path("/proc/self/statm").read_text().split()[1])

    pages()  # the first ones fill what is used again
    assert pages() - pages() > -64  # of 4 KiB; a trace of each ground's pieces would be 480


def test_gymnasiums_own_checker_finds_nothing() -> None:
    env = gymnasium.make(ID, render_mode="rgb_array", disable_env_checker=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*infinity")  # what it sees of motion has no bounds
        check_env(env.unwrapped)
    env.close()


def test_marvin_conforms() -> None:
    check(Marvin(), slots=3, decisions=60)


def test_its_form_as_a_world() -> None:
    arena = Marvin().arena(2, Episodes(0))
    assert arena.spec == Spec((Input("observation", (24,)),), Box((-1.0,) * 4, (1.0,) * 4))
    arena.close()


def test_gymnasium_makes_it_from_its_module(elsewhere: Callable[[str], str]) -> None:
    made = elsewhere("str(gymnasium.make('evorl.mdp.marvin:evorl/Marvin-v0').spec.max_episode_steps)")
    assert made == "2000"


def test_acting_before_a_reset_is_refused() -> None:
    env = gymnasium.make(ID, disable_env_checker=True, render_mode="rgb_array").unwrapped
    with pytest.raises(RuntimeError, match="reset Marvin"):
        env.step(STILL)
    with pytest.raises(RuntimeError, match="reset Marvin"):
        env.render()


def test_its_picture() -> None:
    env = gymnasium.make(ID, render_mode="rgb_array", disable_env_checker=True)
    env.reset(seed=0)
    first = env.render()
    assert first.shape == (400, 600, 3) and first.dtype == np.uint8
    robot = (first > 240).all(-1) & (np.arange(600) < 200)  # white, and not the moon
    _, xs = robot.nonzero()
    assert 1000 < robot.sum() < 8000 and abs(xs.mean() - 120) < 15  # where the camera holds it
    for _ in range(20):
        env.step(STILL)
    assert (env.render() != first).any()
    shift(env.unwrapped, 88.0)
    env.step(STILL)
    assert env.render().shape == first.shape  # at the end of the ground
    env.close()


@pytest.mark.parametrize("module", ["Box2D", "pygame"])
def test_a_missing_extra_says_in_one_line_how_to_install_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for name in ("body", "walker", "drawing"):
        monkeypatch.delitem(sys.modules, f"evorl.mdp.marvin.{name}", raising=False)
        monkeypatch.delattr(f"evorl.mdp.marvin.{name}", raising=False)
    with pytest.raises(BadRequest, match=r"pip install 'evorl-suite\[(box2d|video)\]'") as caught:
        world = Marvin()
        world.ready()
        world.arena(1, Episodes(0)).render()
    assert "\n" not in str(caught.value) and module in str(caught.value)
