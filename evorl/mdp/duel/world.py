"""The config of the duel, and its battles, in which each side decides at irregular times.

Simulated time passes only while both sides are busy. So the same seed and actions repeat a fight exactly, independent
of the wall time of decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Literal, Self

import numpy as np

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Controller, Input, MultiDiscrete, Spec, State, Step
from evorl.mdp.duel.characters import Archer, Ground, Knight
from evorl.mdp.duel.drawing import draw_fight
from evorl.mdp.duel.observation import FEATURES, SIZE, heading, observe
from evorl.mdp.duel.rule_player import Command, rule_command
from evorl.mdp.duel.rules import ARCHER, DIRECTIONS, KNIGHT, SKILLS, STEP, WAIT, Fight, Vector
from evorl.mdp.labels import Binding
from evorl.mdp.ticks import Ticks
from evorl.util.seed import generator, uniform
from evorl.util.types import Count

SPEC = Spec(
    inputs=(Input("fight", (SIZE,)),),
    action=MultiDiscrete((len(SKILLS), len(DIRECTIONS))),
    rewards=("damage", "win"),
    players=2,
    masked=True,
    who="fight",
)
ALL_DIRECTIONS = [True] * len(DIRECTIONS)
FITNESS_WIN = 0.9  # weight of winning in the fitness; the rest is the lead in remaining health


@dataclass(frozen=True, kw_only=True)
class Duel(BattleWorld):
    """Knight against archer. A step is a tick of simulated time.

    An action is (skill, one of 8 directions, 0 is straight at the opponent): where to walk, roll or strafe.
    Blows and arrows always go at the opponent.

    Rewards: "damage" is the share of the opponent's health taken minus the share of own health lost since the last
    decision; "win" is 1 or -1 at a death. If both live at the time limit, the fight is a draw and truncated.
    """

    side: Literal["knight", "archer", "random", "both"] = "random"
    """The learner's side (random: drawn per episode); a rule player plays the other one."""
    knight: Knight = field(default_factory=Knight)
    archer: Archer = field(default_factory=Archer)
    ground: Ground = field(default_factory=Ground)
    budget: Count = 2_000_000

    @property
    def spec(self) -> Spec:
        return SPEC

    @property
    def seconds_per_step(self) -> float:
        return self.ground.dt

    @property
    def feature_names(self) -> Mapping[str, tuple[str, ...]]:
        return {"fight": FEATURES}

    @property
    def action_names(self) -> tuple[tuple[str, ...], ...]:
        return (SKILLS, tuple(f"{45 * k} degrees" for k in range(len(DIRECTIONS))))

    def bindings(self, side: int) -> tuple[Binding, ...]:
        """Arrows walk toward the opponent (up), away or around it; letters use skills in that direction."""
        ring = ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft")
        ways = ("toward the opponent", "around it", "away", "around it, the other way")
        straight = [Binding((key,), 2 * k, way, 1) for k, (key, way) in enumerate(zip(ring, ways, strict=True))]
        between = [Binding((ring[k], ring[(k + 1) % 4]), 2 * k + 1, "in between", 1) for k in range(4)]
        walking = [Binding((key,), STEP, SKILLS[STEP]) for key in ring]
        skills = [Binding((key,), skill, SKILLS[skill]) for skill, key in enumerate("xcv", STEP + 1)]
        still = (Binding((), WAIT, SKILLS[WAIT]), Binding((), 0, ways[0], 1))
        return (*still, *walking, *skills, *straight, *between)

    @property
    def side_names(self) -> tuple[str, ...]:
        return ("knight (blue)", "archer (orange)")

    def evaluation_world(self) -> Duel:
        """Evaluate a policy that was trained on both sides against the rule player."""
        return replace(self, side="random") if self.side == "both" else self

    def one_side(self, side: int) -> Duel:
        return replace(self, side="archer" if side == ARCHER else "knight")

    @property
    def takes_rule_action(self) -> bool:
        return True

    @property
    def longest_episode(self) -> int:
        return self.ground.steps

    def players(self, seed: int) -> tuple[int, ...]:
        match self.side:
            case "knight":
                return (KNIGHT,)
            case "archer":
                return (ARCHER,)
            case "random":
                return (KNIGHT,) if uniform(np.asarray(seed, np.uint64), 0) < 0.5 else (ARCHER,)
            case "both":
                return (KNIGHT, ARCHER)

    def reset(self, *players: int, seed: int) -> DuelBattle:
        return DuelBattle(Fight(self.knight, self.archer, self.ground, seed), players, seed)


class DuelBattle:
    """One fight. Time passes when both sides have acted; a background task plays each side not in ``players``."""

    def __init__(self, fight: Fight, players: Sequence[int], seed: int) -> None:
        self.fight, self._seed = fight, seed
        self.controllers: Sequence[Controller] = [_Side(self, player) for player in players]
        self._rule_sides = [side for side in (KNIGHT, ARCHER) if side not in players]
        self._ticks = Ticks()
        self._waiting: dict[int, asyncio.Future[None]] = {}  # busy sides, and the futures that end their waiting
        self._commands: dict[int, Command] = {}  # given since time last advanced
        self.on_frame: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        for side in self._rule_sides:
            self._ticks.start(self._rule_player(side))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ticks.__aexit__(kind, error, trace)

    async def act(self, side: int, skill: int, heading: Vector) -> None:
        """Use a skill; return when the side can decide again or the fight is over."""
        self._commands[side] = (skill, heading)
        self._waiting[side] = freed = self._ticks.future()
        if len(self._waiting) == len(self.fight.fighters):
            self._pass_time()
        await freed

    def render(self) -> Array:
        return draw_fight(self.fight)

    @property
    def seconds(self) -> float:
        return self.fight.tick * self.fight.ground.dt

    def _pass_time(self) -> None:
        for side in sorted(self._commands):  # only now, so that the second side cannot observe the first one's choice
            self.fight.command(side, *self._commands.pop(side))
        self.fight.advance(self.on_frame)
        for side in (KNIGHT, ARCHER):
            if self.fight.over or not self.fight.fighters[side].left:
                freed = self._waiting.pop(side)
                if not freed.done():  # cancelled if the battle is being left
                    freed.set_result(None)

    async def _rule_player(self, side: int) -> None:
        draw = self.rule_noise(side)
        while not self.fight.over:
            await self.act(side, *rule_command(self.fight, side, draw))

    def rule_noise(self, side: int) -> np.random.Generator:
        """What the rule player of a side draws from."""
        return generator("duel", self._seed, "rule", side)


class _Side:
    """A side that the caller decides for."""

    def __init__(self, battle: DuelBattle, side: int) -> None:
        self._battle = battle
        self._side = side
        self._rule_noise = battle.rule_noise(side)
        self._tick = 0
        self._lead = 0.0

    @property
    def state(self) -> State:
        fight = self._battle.fight
        return State((observe(fight, self._side),), np.array(fight.legal(self._side) + ALL_DIRECTIONS))

    async def __call__(self, action: Array) -> Step:
        skill, direction = action.tolist()
        fight = self._battle.fight
        if skill < 0:  # the rule player decides
            await self._battle.act(self._side, *rule_command(fight, self._side, self._rule_noise))
        else:
            await self._battle.act(self._side, skill, heading(fight, self._side, direction))
        lead, cost = self._damage_lead(), fight.tick - self._tick
        reward = np.array([lead - self._lead, self._outcome()], np.float32)
        self._lead, self._tick = lead, fight.tick
        return Step(reward, fight.terminated, fight.over and not fight.terminated, cost)

    def result(self) -> Mapping[str, float]:
        fight = self._battle.fight
        fighter, foe = fight.fighters[self._side], fight.fighters[1 - self._side]
        win = (1 + self._outcome()) / 2
        lead = fighter.health / fighter.character.health - foe.health / foe.character.health
        return {
            "fitness": FITNESS_WIN * win + (1 - FITNESS_WIN) * (1 + lead) / 2,
            "win": win,
            "damage_dealt": fighter.dealt,
            "damage_taken": fighter.taken,
            "seconds": self._battle.seconds,
        }

    results_so_far = result

    def _damage_lead(self) -> float:
        fighter, foe = self._battle.fight.fighters[self._side], self._battle.fight.fighters[1 - self._side]
        return fighter.dealt / foe.character.health - fighter.taken / fighter.character.health

    def _outcome(self) -> float:
        """Return 1 if only the opponent is dead, -1 if only this side is, else 0."""
        fighter, foe = self._battle.fight.fighters[self._side], self._battle.fight.fighters[1 - self._side]
        return float(foe.health <= 0) - float(fighter.health <= 0)
