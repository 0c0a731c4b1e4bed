"""An Arena that runs many battles on one asyncio event loop.

Each controlled side of each battle is a coroutine that publishes its state, waits for an action, and acts. The sides of
a game in moves (`evorl.mdp.turns`) share one.
`BattleArena.recv` runs the loop until at least one slot waits and no task can run without waiting. Between two calls
the loop stands still, so arrays do not change while they are read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import numpy as np

from evorl.mdp import decision_arrays
from evorl.mdp.battle_moves import play_moves
from evorl.mdp.battle_slots import Game, SlotState
from evorl.mdp.core import (
    MDP,
    Array,
    Closes,
    Controller,
    Decisions,
    EpisodeEndHook,
    FrameHook,
    ResultsSoFar,
    SavedAtAnyTime,
    State,
    StateDict,
    Step,
    StepLimit,
    WorldError,
)
from evorl.mdp.delay import name_of
from evorl.mdp.event_loop import PausingLoop, run_all
from evorl.mdp.forms import Mismatch, NoResult
from evorl.mdp.restarts import PAUSES_S, Restarts
from evorl.mdp.turns import TurnBattle
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

LOG = logging.getLogger("evorl")
ALIKE_S = 0.1
"""Wall time after a failure in which equal failures share its warning."""


class BattleArena(EpisodeEndHook, FrameHook, StepLimit, SavedAtAnyTime, ResultsSoFar, Closes):
    """Arena over the battles of an MDP.

    The learner decides for ``players(key)`` in the episode with that key, always P sides (side 0 alone by
    default). Game g has slots g*P .. g*P+P-1 and plays the keys episodes(g, 0), episodes(g, 1), ...
    Environment steps are counted at the first of each game's P sides. `close` leaves the MDP open, since other arenas
    share it, and calls ``release`` for what was made for this arena alone.

    A battle that raises starts again with the same key; each of its slots that was shown a state is then among
    `Decisions.failed`. `recv` raises `WorldError` when one key failed three times.
    A side that ends before the other sides of its game is returned once the next game has started.

    `state_dict` may be called after any `recv`, before the next `send`, also while some slots do not wait: their last
    action is then in flight, and is taken again after loading. Raises `BadRequest` if slots is not a multiple of P.
    """

    def __init__(
        self, mdp: MDP, slots: int, episodes: Episodes, players: Callable[[int], tuple[int, ...]] = lambda seed: (0,),
        release: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.spec, self.slots = mdp.spec, slots
        self._mdp, self._episodes, self._players, self._release = mdp, episodes, players, release
        self.sides = len(players(int(episodes(0, 0))))
        if slots < 1 or slots % self.sides:
            raise BadRequest(f"{slots} slots cannot be divided among games of {self.sides} sides", "rl.slots")
        self._rows = decision_arrays.empty_decisions(self.spec, slots, getattr(mdp, "channels_last", ()))
        self._forms = decision_arrays.BattleForms(self.spec, name_of(mdp))
        self._dtype, self._width = decision_arrays.action_format(self.spec.action)
        self._action_bytes = np.dtype(self._dtype).itemsize * self._width
        self._newly_waiting: list[int] = []  # slots that began to wait since the last recv
        self._restored: list[int] = []  # those that waited when a loaded state was saved: received first, alone
        self._loaded: StateDict | None = None  # the state that was loaded, as long as nothing else was received or sent
        self._restarts = Restarts(name_of(mdp), slots // self.sides)
        self._failed: set[int] = set()  # slots whose last decision failed, since they were received last
        self._failure: BaseException | None = None
        self._on_frame: Callable[[], None] | None = None
        self._loop = PausingLoop(self._stalled)
        self._begin()

    def recv(self) -> Decisions:
        waiting = self._restored or self._newly_waiting
        if self._failure is None and not waiting and all(entry.waits for entry in self._slot_states):
            raise RuntimeError("every slot waits for an answer: send before the next recv")
        if not self._restored:
            self._loaded = None
            self._run(self._newly_waiting.__len__)
        slots, rows = sorted(waiting), self._rows
        waiting.clear()
        rows.slots = np.array(slots, np.int64)
        rows.cost = sum(self._slot_states[slot].cost for slot in slots if slot % self.sides == 0)
        rows.results, rows.failed = [], sorted(self._failed.intersection(slots))
        self._failed.difference_update(slots)
        for slot in slots:
            entry = self._slot_states[slot]
            if entry.result is not None:
                rows.results.append((slot, entry.result))
                entry.result = None
        return rows

    def send(self, slots: Array, actions: Array) -> None:
        """Raises ValueError for a slot that does not wait."""
        rows, self._loaded = self._rows, None
        rows.terminated[slots] = rows.truncated[slots] = False
        actions = np.array(actions, self._dtype)  # a copy: the caller may use its array again
        entries = self._slot_states
        for slot, action in zip(slots.tolist(), actions, strict=True):
            entry = entries[slot]
            if not entry.waits:
                raise ValueError(f"slot {slot} does not wait for an answer")
            entry.waits, entry.action = False, action
            if not entry.answer.done():  # cancelled if the battle failed meanwhile
                entry.answer.set_result(action)

    def render(self, slot: int = 0) -> Array | None:
        draw = getattr(self._games[slot // self.sides].battle, "render", None)
        return None if draw is None else draw()

    @property
    def on_frame(self) -> Callable[[], None] | None:
        return self._on_frame

    @on_frame.setter
    def on_frame(self, hook: Callable[[], None] | None) -> None:
        self._on_frame = hook
        for game in self._games:
            game.hook(hook)

    def seconds(self, slot: int = 0) -> float | None:
        return getattr(self._games[slot // self.sides].battle, "seconds", None)

    def results_so_far(self, slot: int) -> Mapping[str, float]:
        """Those of controllers with a method ``results_so_far()``."""
        game, side = divmod(slot, self.sides)
        battle = self._games[game].battle
        tell = None if battle is None else getattr(battle.controllers[side], "results_so_far", None)
        return {} if tell is None else tell()

    def state_dict(self) -> StateDict:
        if self._loaded is not None:  # a slot in flight may have ended its episode by now, which no replay would bring
            return self._loaded
        states = list(enumerate(self._slot_states))
        broken = np.array([each.broken for _, each in states], np.bool_)
        shown = [each.waits and not each.broken for _, each in states]
        digests = [decision_arrays.digest(self._rows, slot) if shown[slot] else 0 for slot in range(self.slots)]
        logs = [entry.actions(self._dtype, self._width) for entry in self._slot_states]
        return {
            "episode": np.array([game.number for game in self._games], np.int64),
            "failures": np.array([game.failures for game in self._games], np.int64),
            "waits": np.array([each.waits and s not in self._newly_waiting for s, each in states], np.bool_),
            "broken": broken,
            "seen": decision_arrays.save_states(self._rows, np.flatnonzero(broken)),
            "digest": np.array(digests, np.int64),
            "lengths": np.array([len(log) for log in logs], np.int64),
            "actions": np.concatenate(logs),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for another number of slots, `WorldError` if a replay reaches another state."""
        waits = np.asarray(state["waits"])
        if len(waits) != self.slots or len(state["episode"]) != len(self._games):
            raise ValueError(f"the state is of {len(waits)} slots, the arena has {self.slots}")
        self._end_games()
        self._begin()
        for game, number, failures in zip(self._games, state["episode"], state["failures"], strict=True):
            game.number, game.failures = int(number), int(failures)
        logs = np.split(state["actions"], np.cumsum(state["lengths"])[:-1])
        self._load_broken(state, waits)
        for entry, log, waited in zip(self._slot_states, logs, waits.tolist(), strict=True):
            entry.loaded = log
            entry.replay_again()
            entry.shown = entry.in_flight = not waited
        slots = np.flatnonzero(waits).tolist()
        if slots:
            self._run(lambda: sum(self._slot_states[slot].waits for slot in slots), len(slots))
        for entry in self._slot_states:
            entry.loaded = None
        decision_arrays.check_digests(self._rows, slots, state["digest"], name_of(self._mdp))
        self._newly_waiting[:] = [slot for slot in self._newly_waiting if not waits[slot]]
        self._restored[:], self._loaded = slots, state
        self._clear_outcomes(slots)

    def close(self) -> None:
        if self._loop.loop.is_closed():
            return
        self._end_games()
        self._loop.close()
        self._release()

    def _run(self, score: Callable[[], int], target: int = 1) -> None:
        """Run until ``score()`` reaches ``target``. Raises the world's failure, or what was raised within it."""
        if self._failure is None:
            try:
                self._loop.run(score, target)
            finally:
                self._restarts.tell()
        if self._failure is not None:
            raise self._failure

    def _stalled(self, wakeable: bool) -> None:
        """Warn that no battle makes progress; raise if none ever can."""
        held = [slot for slot, entry in enumerate(self._slot_states) if entry.waits]
        text = f"no battle of {name_of(self._mdp)} goes on" + (f": the slots {held} were not answered" if held else "")
        if not wakeable:
            raise RuntimeError(text)
        LOG.warning("%s; waiting for the world", text)

    def _begin(self) -> None:
        rows, sides = self._rows, self.sides
        rows.reward[:] = 0
        rows.terminated[:] = rows.truncated[:] = False
        for slots in (self._newly_waiting, self._restored, self._failed):
            slots.clear()
        self._failure, self._leaving, self._loaded = None, False, None
        self._slot_states = [SlotState(self._loop.loop.create_future()) for _ in range(self.slots)]
        self._games = [Game(g, range(g * sides, (g + 1) * sides)) for g in range(self.slots // sides)]
        self._tasks = [self._loop.loop.create_task(self._play(game)) for game in self._games]

    def _end_games(self) -> None:
        """Cancel the games, then tasks that their battles left behind."""
        self._leaving = True
        self._loop.cancel(self._tasks)
        for task in self._loop.cancel(asyncio.all_tasks(self._loop.loop)):
            LOG.warning("a task of %s does not end when cancelled: %r", name_of(self._mdp), task)

    # -------------------------------------------------------------- playing

    async def _play(self, game: Game) -> None:
        """Play episode after episode."""
        while True:
            try:
                await self._play_episode(game)
            except (Exception, asyncio.CancelledError) as error:
                self._go_on(game)
                if self._leaving or self._gives_up(game, error):
                    return
                await self._loop.pause(game.pause)
            except BaseException as error:  # of no game: asyncio would keep it in the task, and `recv` wait for ever
                return self._fail(error)
            else:
                game.ended, game.failures = True, 0
                for slot in game.slots:
                    self._slot_states[slot].shown, self._slot_states[slot].loaded = False, None

    async def _play_episode(self, game: Game) -> None:
        key = int(self._episodes(game.index, game.number + game.ended))
        battle = self._mdp.reset(*self._players(key), seed=key)
        async with battle as game.battle:
            game.hook(self._on_frame)
            self._go_on(game)
            entries = [self._slot_states[slot] for slot in game.slots]
            for entry in entries:
                entry.length = 0
            if isinstance(battle, TurnBattle) and not any(entry.broken for entry in entries):
                seats = list(zip(game.slots, entries, battle.controllers, strict=True))
                await play_moves(battle, seats, self._ask, self._ends)
            else:  # also after a failure, of which each side waits for its own action
                pairs = zip(game.slots, game.battle.controllers, strict=True)
                await run_all([self._play_side(slot, controller) for slot, controller in pairs])
            self._notify_episode_end()

    def _go_on(self, game: Game) -> None:
        """Leave an ended episode behind. Until then a saved state is of it, since nobody has received its outcome."""
        if game.ended:
            game.number, game.ended = game.number + 1, False
            for slot in game.slots:
                self._slot_states[slot].log.clear()

    async def _play_side(self, slot: int, controller: Controller) -> None:
        """Play one side of one episode. Names are bound before the loop, which runs once per decision."""
        entry, log, wait = self._slot_states[slot], self._slot_states[slot].log, self._loop.loop.create_future
        act_in_replay = getattr(controller, "act_without_delay", controller)  # replays skip a delay
        if entry.broken:
            await self._take_back(slot, entry)
        while True:
            self._ask(slot, entry, controller.state)
            if entry.action is None:
                entry.answer = answer = wait()
                action, act = await answer, controller
            else:
                action, act = entry.action, act_in_replay
            log += action.tobytes()
            if self._ends(slot, entry, controller, await act(action)):
                return

    def _ask(self, slot: int, entry: SlotState, state: State) -> None:
        """Show a side its state, or take its action from those to be replayed."""
        if entry.replay:
            entry.action = entry.replay.pop()
            return
        decision_arrays.write_state(self._rows, slot, self._forms.state(slot, state))
        entry.action, entry.waits, entry.shown = None, True, True
        self._newly_waiting.append(slot)

    def _ends(self, slot: int, entry: SlotState, controller: Controller, step: Step) -> bool:
        """Write down what came of an action; return whether the side's episode is over."""
        self._rows.reward[slot] = self._forms.reward(step.reward)
        entry.cost = step.cost
        entry.length += step.cost
        limit = self.step_limit if self.sides == 1 else None  # other sides may wait for one that was cut
        if limit is not None and entry.length >= limit and not step.over:
            step = step._replace(truncated=True)
            self.cut += ((slot, self._games[slot].number),)
        if step.over:
            self._finish_side(slot, entry, controller, step)
        return step.over

    def _finish_side(self, slot: int, entry: SlotState, controller: Controller, step: Step) -> None:
        rows, truncated = self._rows, step.truncated and not step.terminated  # terminated wins over truncated
        rows.terminated[slot], rows.truncated[slot] = step.terminated, truncated
        if truncated:
            decision_arrays.write_final_state(rows, slot, self._forms.state(slot, controller.state))
        entry.result = {"length": float(entry.length), **controller.result()}
        entry.replay.clear()

    # -------------------------------------------------------------- when a battle breaks

    def _gives_up(self, game: Game, error: BaseException) -> bool:
        """Count a failure of the episode; return True if it has failed too often."""
        entries = [self._slot_states[slot] for slot in game.slots]
        steps = max(len(entry.log) for entry in entries) // self._action_bytes
        if self._replays_again(game, entries):
            game.replays += 1
            failures = game.replays
            for entry in entries:
                entry.replay_again()
            self._newly_waiting[:] = [slot for slot in self._newly_waiting if slot not in game.slots]
        else:
            game.failures += 1
            failures = game.failures
            for entry in entries:
                entry.break_off()
        try:
            if isinstance(error, NoResult):  # of all slots
                raise error
            if isinstance(error, Mismatch):
                raise Mismatch(f"{name_of(self._mdp)}, slot {game.slots[0]}, key {self._key(game)}: {error}")
            game.pause = self._restarts.add(game.slots[0], self._key(game), failures, steps, error)
        except WorldError as failure:
            self._fail(failure)
            return True
        self._loop.loop.call_later(ALIKE_S, self._restarts.tell)
        return False

    def _fail(self, error: BaseException) -> None:
        """Leave the loop, and let `recv` raise this."""
        self._failure = self._failure or error
        if not self._leaving:
            self._loop.loop.stop()

    def _replays_again(self, game: Game, entries: list[SlotState]) -> bool:
        """Whether the game failed while a state is loaded, and is replayed from its start once more.

        What fails in every replay, after all that had an outcome when the state was saved, is a decision in flight.
        """
        if any(entry.loaded is None for entry in entries):
            return False
        replayed = all(entry.waits or (entry.in_flight and not entry.replay) for entry in entries)
        return not replayed or game.replays < len(PAUSES_S)

    async def _take_back(self, slot: int, entry: SlotState) -> None:
        """Report that the last decision of the broken episode failed, once the pending action has arrived."""
        if entry.waits:
            entry.answer = self._loop.loop.create_future()
            await entry.answer
        rows = self._rows
        entry.broken, entry.result, entry.cost = False, None, 0
        rows.reward[slot], rows.terminated[slot], rows.truncated[slot] = 0, False, False
        self._failed.add(slot)

    # -------------------------------------------------------------- exact resume

    def _load_broken(self, state: StateDict, waits: Array) -> None:
        """Restore the published states of broken attempts, which a replay cannot repeat."""
        broken = np.flatnonzero(state["broken"])
        decision_arrays.restore_states(self._rows, broken, state["seen"])
        for slot in broken.tolist():
            self._slot_states[slot].broken, self._slot_states[slot].waits = True, bool(waits[slot])

    def _clear_outcomes(self, slots: list[int]) -> None:
        """Clear rewards, ends, costs and results that were already received before saving."""
        self._rows.reward[slots] = 0
        self._rows.terminated[slots] = self._rows.truncated[slots] = False
        self._failed.difference_update(slots)
        for slot in slots:
            self._slot_states[slot].cost, self._slot_states[slot].result = 0, None

    def _key(self, game: Game) -> int:
        return int(self._episodes(game.index, game.number))
