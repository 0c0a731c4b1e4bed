"""The arena of Atari games: B slots in lockstep, each with an emulator of its own.

A game is its key and the actions taken: `start_of` gives the state that every game starts from, and the key gives the
number of no-ops and the sticky actions, as numbered draws. So no game depends on other slots or on what an emulator
played before, and a saved game goes on from its emulator's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evorl.mdp.atari.console import FIRE, NOOP, give_back, start_of, take_console
from evorl.mdp.atari.pictures import Shrink
from evorl.mdp.atari.scores import human_normalized
from evorl.mdp.core import Array, Closes, Decisions, Discrete, EpisodeEndHook, Input, Spec, StoppableSlots
from evorl.mdp.decision_arrays import empty_decisions
from evorl.util.saved import restore, saved
from evorl.util.seed import Episodes, uniform
from evorl.util.types import StateDict

if TYPE_CHECKING:
    from evorl.mdp.atari.world import Atari, RewardClip


class AtariArena(EpisodeEndHook, StoppableSlots, Closes):
    """``slots`` games of ``world``. Results of a game: "return" (its points), "length" (environment steps of the
    learner), and "human_normalized" for games whose scores are known.
    """

    sides = 1

    def __init__(self, world: Atari, slots: int, episodes: Episodes) -> None:
        self.slots, self._world, self._episodes = slots, world, episodes
        self._start = start = start_of(world.game)
        codes = start.all_actions if world.full_action_space else start.minimal_actions
        self._codes = np.array(codes)
        self._opening = codes[1:3] if world.fire_reset and codes[1] == FIRE and len(codes) > 2 else ()
        picture = (world.stack, world.size, world.size)
        self.spec = Spec(inputs=(Input("observation", picture, "uint8", stacked=True),), action=Discrete(len(codes)))
        height, width = start.frame.shape
        self._shrink = Shrink(height, width, world.size)
        self._consoles = [take_console(world.game) for _ in range(slots)]
        self._decisions = empty_decisions(self.spec, slots)
        self._decisions.slots = np.arange(slots)
        self._seen = self._decisions.inputs[0]
        self._frames = np.zeros((slots, 2, *start.frame.shape), np.uint8)  # the last two of the last step
        self._stopped: set[int] = set()
        self._running = np.arange(slots)
        self._episode = np.zeros(slots, np.int64)
        self._keys = np.zeros(slots, np.uint64)
        self._drawn = np.zeros(slots, np.int64)  # draws of the game so far
        self._held = np.zeros(slots, np.int64)  # the action of the last frame
        self._lives = np.zeros(slots, np.int64)
        self._points = np.zeros(slots)
        self._lengths = np.zeros(slots, np.int64)
        self._begin(self._running)

    # -------------------------------------------------------------- playing

    def recv(self) -> Decisions:
        return self._decisions

    def send(self, slots: Array, actions: Array) -> None:
        """Advance every game by one step. Raises ValueError unless ``slots`` is all slots."""
        if len(slots) != self.slots:
            raise ValueError(f"Atari games advance together: {self.slots} slots, got actions for {len(slots)}")
        running, decisions, world = self._running, self._decisions, self._world
        points = self._advance(running, self._codes[actions[running, 0]])
        self._look(running)
        self._points[running] += points
        self._lengths[running] += 1
        decisions.reward[:], decisions.results, decisions.cost = 0, [], len(running)
        decisions.reward[running, 0] = learner_reward(world.reward_clip, points)
        consoles = [self._consoles[slot] for slot in running]
        over = np.array([console.over() for console in consoles], bool)
        lives = np.array([console.lives() for console in consoles], np.int64)
        lost = (lives < self._lives[running]) & (lives > 0) if world.episodic_life else np.zeros_like(over)
        late = self._lengths[running] >= world.longest_episode
        self._lives[running] = lives
        decisions.terminated[:] = decisions.truncated[:] = False
        decisions.terminated[running], decisions.truncated[running] = over | lost, late & ~(over | lost)
        if (over | lost | late).any():
            self._end(running[over | late], running[lost & ~(over | late)])

    def _advance(self, slots: Array, codes: Array) -> Array:
        """Hold actions [n] for a step in the games of n slots; return the points [n]. Keeps the last two frames."""
        skip = self._world.frame_skip
        played = self._sticky(slots, codes, skip).tolist()
        points = np.zeros(len(slots))
        for n, slot in enumerate(slots.tolist()):
            console, frames = self._consoles[slot], self._frames[slot]
            total = 0
            for frame, code in enumerate(played[n]):
                total += console.act(code)
                if frame >= skip - 2:
                    console.copy_frame(frames[frame - skip])
            points[n] = total
        return points

    def _sticky(self, slots: Array, codes: Array, frames: int) -> Array:
        """Return the actions [n, frames] that n slots take: each frame repeats the last with probability sticky."""
        played = np.repeat(codes[:, None], frames, axis=1)
        if self._world.sticky > 0:
            draws = uniform(self._keys[slots, None], self._drawn[slots, None] + np.arange(frames))
            last = self._held[slots]
            for frame in range(frames):
                last = np.where(draws[:, frame] < self._world.sticky, last, codes)
                played[:, frame] = last
        self._drawn[slots] += frames
        self._held[slots] = played[:, -1]
        return played

    def _look(self, slots: Array) -> None:
        """Append the newest pictures to the observations of the given slots."""
        every = slice(None) if len(slots) == self.slots else slots
        pictures = self._shrink(self._frames[every])
        self._seen[every, :-1] = self._seen[every, 1:]
        self._seen[every, -1] = pictures

    def _look_afresh(self, slot: int) -> None:
        """Fill the observation with the newest picture."""
        self._seen[slot] = self._shrink(self._frames[slot : slot + 1])[0]

    # -------------------------------------------------------------- starts and ends

    def _end(self, games: Array, lives: Array) -> None:
        """Start the next games of slots whose game is over, and the next lives of slots that lost one."""
        self._notify_episode_end()
        decisions = self._decisions
        cut = np.flatnonzero(decisions.truncated)
        decisions.final[0][cut] = self._seen[cut]
        lost = [slot for slot in lives.tolist() if not self._begin_life(slot)]
        for slot in [*games.tolist(), *lost]:
            decisions.results.append((slot, self._result(slot)))
            self._episode[slot] += 1
            self._begin(np.array([slot]))

    def _result(self, slot: int) -> dict[str, float]:
        score = float(self._points[slot])
        relative = human_normalized(self._world.game, score)
        return {
            "return": score,
            "length": float(self._lengths[slot]),
            **({} if relative is None else {"human_normalized": relative}),
        }

    def _begin(self, slots: Array) -> None:
        """Start the game of the present number in each slot."""
        self._keys[slots] = self._episodes(slots, self._episode[slots])
        self._drawn[slots] = self._lengths[slots] = 0
        for slot in slots.tolist():
            self._power_on(slot)
            while not self._open(slot):  # the game ended within its opening moves
                self._power_on(slot)
            self._lives[slot] = self._consoles[slot].lives()
            self._look_afresh(slot)

    def _power_on(self, slot: int) -> None:
        """Go to the start of a game and wait 1 to ``noop_max`` frames."""
        console, frames = self._consoles[slot], self._frames[slot]
        console.load_state(self._start.state)
        frames[0], frames[1] = 0, self._start.frame
        if self._world.noop_max:
            draw = float(uniform(self._keys[slot], self._drawn[slot]))
            for _ in range(1 + int(draw * self._world.noop_max)):
                console.act(NOOP)
            console.copy_frame(frames[1])
        self._drawn[slot] += 1
        self._held[slot] = NOOP
        self._points[slot] = 0

    def _begin_life(self, slot: int) -> bool:
        """Go on after a lost life: a step without action, then the opening moves. Returns whether the game goes on."""
        goes_on = self._move(slot, NOOP) and self._open(slot)
        self._lives[slot] = self._consoles[slot].lives()
        self._look_afresh(slot)
        return goes_on

    def _open(self, slot: int) -> bool:
        """Press fire, where that is wanted. Returns whether the game goes on."""
        return all(self._move(slot, code) for code in self._opening)

    def _move(self, slot: int, code: int) -> bool:
        """Take a step that is not the learner's. Returns whether the game goes on."""
        self._points[slot] += self._advance(np.array([slot]), np.array([code]))[0]
        return not self._consoles[slot].over()

    def stop_slot(self, slot: int) -> None:
        self._stopped.add(slot)
        self._running = np.array([n for n in range(self.slots) if n not in self._stopped], np.int64)

    # -------------------------------------------------------------- pictures, states

    def render(self, slot: int = 0) -> Array:
        """Return the screen. Before a game's first frame it shows the warm-up of `Console.load_state`."""
        return self._consoles[slot].frame()

    def state_dict(self) -> StateDict:
        """Return eight kilobytes for each emulator, and the observations."""
        states = [np.frombuffer(console.save_state(), np.uint8) for console in self._consoles]
        return {
            "consoles": {str(slot): state for slot, state in enumerate(states)},
            "observation": self._seen.copy(),
            **saved(self, self._SAVED, "_"),
        }

    _SAVED = ("episode", "drawn", "held", "lives", "points", "lengths")

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for a state of another number of slots."""
        if len(state["episode"]) != self.slots:
            raise ValueError(f"the state is of {len(state['episode'])} slots, the arena has {self.slots}")
        restore(self, self._SAVED, state, "_")
        self._keys = self._episodes(np.arange(self.slots), self._episode)
        self._seen[:] = state["observation"]
        for slot, console in enumerate(self._consoles):
            console.load_state(np.asarray(state["consoles"][str(slot)]).tobytes())
        decisions = self._decisions
        decisions.reward[:], decisions.results, decisions.cost = 0, [], 0
        decisions.terminated[:] = decisions.truncated[:] = False

    def close(self) -> None:
        consoles, self._consoles = self._consoles, []
        for console in consoles:
            give_back(console)


def learner_reward(clip: RewardClip | None, points: Array) -> Array:
    """Return what the learner receives of the points of a step.

    sign: Mnih et al. 2015. clamp: to [-1, 1]; points are whole numbers, so it equals sign. soft_asymmetric: about the
    points if they are few, at most 5, and 0.3 times that for losses (as in the code of Espeholt et al. 2018).
    """
    match clip:
        case None:
            return points
        case "sign":
            return np.sign(points)
        case "clamp":
            return points.clip(-1, 1)
        case "soft_asymmetric":
            squeezed = np.tanh(points / 5)
            return 5 * np.where(points < 0, 0.3 * squeezed, squeezed)
