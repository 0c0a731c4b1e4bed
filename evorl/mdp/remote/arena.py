"""An arena whose games run in other programs: rows of many sides arrive and are answered at once.

A side asks when it must decide, in its own time. `RemoteArena.recv` waits until some side asks, and takes whatever else
has arrived. A battle that is lost is played again. If the game repeats itself, evorl sends the same seed and the same
actions again, up to where the battle was, and the learner sees no difference. If it does not, the last decision of each
side fails (`Decisions.failed`), and the episode begins anew with the same key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from evorl.mdp.core import Array, Closes, Decisions, EpisodeEndHook, SavedAtAnyTime, StepLimit
from evorl.mdp.decision_arrays import digest, empty_decisions, restore_states, save_states
from evorl.mdp.forms import Mismatch
from evorl.mdp.remote.battles import Battles, Match
from evorl.mdp.remote.logs import Logs
from evorl.mdp.remote.messages import Ask, Unplayable
from evorl.mdp.remote.offer import Rows
from evorl.mdp.remote.server import GameServer, overlong
from evorl.mdp.remote.truth import every, some
from evorl.util.errors import BadRequest
from evorl.util.heartbeat import heartbeat
from evorl.util.seed import Episodes
from evorl.util.types import StateDict


class RemoteArena(EpisodeEndHook, StepLimit, SavedAtAnyTime, Closes):
    """Arena over battles in other programs. ``players``: the learner's sides in the episode with a key, always P.

    `state_dict` may be called after any `recv`, also while some slots do not wait. Raises `BadRequest` if slots is no
    multiple of P.
    """

    def __init__(
        self, server: GameServer, slots: int, episodes: Episodes, players: Callable[[int], tuple[int, ...]],
        deadline_s: float, ended: Callable[[], None] = lambda: None, time_limit: int | None = None,
    ) -> None:  # fmt: skip
        """``ended`` is called when the arena is closed; ``time_limit``: decisions of the longest episode, if known."""
        offer = self._offer = server.offer
        self.spec, self.slots, self.sides = offer.spec, slots, len(players(int(episodes(0, 0))))
        if slots < 1 or slots % self.sides:
            raise BadRequest(f"{slots} slots cannot be divided among games of {self.sides} sides", "rl.slots")
        self._repeats = offer.hello.repeats
        self._rows = empty_decisions(self.spec, slots)
        self._last = replace(self._rows, inputs=self._rows.final, legal=self._rows.final_legal)  # as states of slots
        self._new_battles: Callable[[], Battles] = partial(
            Battles, server, slots, self.sides, episodes, players, deadline_s
        )
        self._closed, self._on_close, self._time_limit = False, ended, time_limit
        self._reset()

    def _reset(self) -> None:
        """Forget all episodes."""
        slots, rows = self.slots, self._rows
        rows.reward[:] = 0
        rows.terminated[:] = rows.truncated[:] = False
        self._battles = self._new_battles()
        self._logs = Logs(self.spec.action, slots, kept=self._repeats)
        self._waits, self._ended, self._broken, self._loading = np.zeros((4, slots), np.bool_)
        self._steps, self._cost = np.zeros((2, slots), np.int64)  # of the episode; of the last decision
        self._counts = (np.arange(slots) % self.sides == 0).astype(np.int64)  # 1 for the slots whose cost is the game's
        self._results: dict[int, dict[str, float]] = {}
        self._held: dict[int, Rows] = {}  # first rows of episodes that begin anew, of slots that still wait
        self._fresh: list[int] = []  # slots that began to wait since the last recv
        self._restored: list[int] = []  # those that waited when a loaded state was saved: received first, alone
        self._failed: set[int] = set()
        self._recovering = False  # a battle is played again

    # -------------------------------------------------------------- the arena

    def recv(self) -> Decisions:
        if not self._fresh and not self._restored and every(self._waits):
            raise RuntimeError("every slot waits for an answer: send before the next recv")
        rows = self._rows
        if self._restored:
            fresh, self._restored = self._restored, []
        else:
            self._wait(lambda: bool(self._battles.settled(self._fresh)))
            fresh = sorted(self._battles.settled(self._fresh))
            self._fresh = [slot for slot in self._fresh if slot not in fresh] if len(fresh) < len(self._fresh) else []
        rows.slots = slots = np.array(fresh, np.int64)
        rows.cost = int(self._cost[slots].dot(self._counts[slots]))
        rows.results, rows.failed = [], []
        if self._results:
            rows.results = [(slot, self._results.pop(slot)) for slot in fresh if slot in self._results]
        if self._failed:
            rows.failed = sorted(self._failed.intersection(fresh))
            self._failed.difference_update(fresh)
        return rows

    def send(self, slots: Array, actions: Array) -> None:
        """Raises ValueError for a slot that does not wait."""
        if not every(self._waits[slots]):
            raise ValueError(f"slot {slots[~self._waits[slots]][0]} does not wait for an answer")
        rows = self._rows
        rows.terminated[slots] = rows.truncated[slots] = False
        self._waits[slots] = False
        if self._recovering:
            slots, actions = self._send_while_recovering(slots, actions)
        else:
            self._logs.append(slots, actions)
        if len(slots):
            self._battles.act(slots, actions)

    def _send_while_recovering(self, slots: Array, actions: Array) -> tuple[Array, Array]:
        """Log actions; return the slots and actions that are to be sent now."""
        broken = self._broken[slots]
        for slot in slots[broken].tolist():
            if slot in self._held:
                self._show_anew(slot, self._held.pop(slot))
        slots, actions = slots[~broken], actions[~broken]
        if len(slots):
            self._logs.append(slots, actions)
        asked = self._battles.asked[slots]  # in this attempt: else it is sent when the game asks for it again
        return slots[asked], actions[asked]

    def render(self, slot: int = 0) -> Array | None:
        """Games of other programs draw for themselves."""
        return None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._battles.close()
            self._on_close()

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Let games play until ``ready()``, and take what else has arrived by then. Raises `WorldError`."""
        while not self._take(ready):
            heartbeat()  # `Battles` ends this wait (mdp.deadline_s, mdp.start_s)
            self._battles.poll()
        before = -1
        while len(self._fresh) > before and not every(self._waits):
            before = len(self._fresh)
            self._battles.poll_now()
            self._take(ready)

    def _take(self, ready: Callable[[], bool]) -> bool:
        """Take what has arrived; return whether that is enough. Raises `WorldError`."""
        battles = self._battles
        while battles.inbox or battles.lost:
            inbox, battles.inbox = battles.inbox, []
            for slots, rows in inbox:
                self._outcomes(slots, rows)
            if battles.lost:
                for game, (why, gone) in battles.take_lost().items():
                    self._lose(battles.games[game], why, gone)
                battles.tell()
        return ready()

    # -------------------------------------------------------------- rows

    def _outcomes(self, slots: Array, rows: Rows) -> None:
        """Take rows [n] of slots that asked, or whose episode ended."""
        battles = self._battles
        first = battles.sent[slots] == 0
        if some(first) or not every(rows.cost):
            self._steps[slots[first]] = 0
            odd = ((rows.cost == 0) != first) | (first & (rows.reward.any(1) | (rows.end != Ask.GOES_ON)))
            why = "sent a first row with a cost, a reward or an end, or a later one without a cost"
            for slot in slots[odd].tolist():
                battles.reject(battles.game_of(slot), why)
            slots, rows, first = slots[~odd], rows.take(~odd), first[~odd]
        self._steps[slots] += rows.cost
        battles.hear(slots, rows.end != Ask.GOES_ON)
        if self._recovering:
            new = self._recover(slots, rows)
            slots, rows, first = slots[new], rows.take(new), first[new]
        if len(slots):
            self._show(slots, rows, first)

    def _show(self, slots: Array, rows: Rows, first: Array) -> None:
        """Take the outcomes of slots' last actions, and show the states in which they wait."""
        shown = self._rows
        if some(first):
            shown.reward[slots[~first]], self._cost[slots[~first]] = rows.reward[~first], rows.cost[~first]
        else:
            shown.reward[slots], self._cost[slots] = rows.reward, rows.cost
        over = rows.end != Ask.GOES_ON
        if self.step_limit is not None and self.sides == 1:
            over |= self._steps[slots] >= self.step_limit
        if self._time_limit is not None:
            self._check_ended(slots[~over], self._time_limit)
        if some(over):
            for row in np.flatnonzero(over).tolist():
                self._end(int(slots[row]), rows.take(np.array([row])))
            slots, rows = slots[~over], rows.take(~over)
        self._write(slots, rows)
        self._waits[slots] = True
        self._fresh += slots.tolist()

    def _write(self, slots: Array, rows: Rows) -> None:
        for shown, x in zip(self._rows.inputs, rows.inputs, strict=True):
            shown[slots] = x
        if self._rows.legal is not None:
            self._rows.legal[slots] = rows.legal

    def _end(self, slot: int, rows: Rows) -> None:
        """End a side's episode with its row; the game's next one begins with the last of its sides."""
        shown, match = self._rows, self._battles.game_of(slot)
        end = int(rows.end[0])
        if end == Ask.GOES_ON:
            self._check_cut()
        shown.terminated[slot], shown.truncated[slot] = end == Ask.TERMINATED, end != Ask.TERMINATED
        if end != Ask.TERMINATED:
            for final, x in zip(shown.final, rows.inputs, strict=True):
                final[slot] = x[0]
            if shown.final_legal is not None and rows.legal is not None:
                shown.final_legal[slot] = rows.legal[0]
        results = zip(self._offer.hello.results, rows.results[0].tolist(), strict=True)
        self._results[slot] = {"length": float(self._steps[slot]), **dict(results)}
        self._ended[slot] = True
        if end == Ask.GOES_ON:  # cut by the limit
            self.cut += ((slot, match.number),)
            self._battles.leave(match)
        slots = self._battles.slots_of(match)
        if every(self._ended[slots]):
            self._notify_episode_end()
            self._ended[slots] = False
            self._logs.length[slots] = 0
            match.next_episode()
            self._battles.begin(match)

    def _check_ended(self, slots: Array, limit: int) -> None:
        """Raise `Mismatch` if one of these slots, whose episodes go on, has had the decisions of the longest one."""
        if some(self._logs.length[slots] >= limit):
            raise overlong(self._offer.hello.game, limit)

    def _check_cut(self) -> None:
        """Raise `Mismatch` where an episode that the limit cuts lacks results: a game sends them with its own end."""
        if names := self._offer.hello.results:
            raise Mismatch(
                f"an episode of {self._offer.hello.game} had no end after {self.step_limit:,} steps (eval.max_steps), "
                f"so it has no {names[0]}: let the game end it after a limit, and declare that limit as mdp.time_limit"
            )

    # -------------------------------------------------------------- battles that are lost

    def _lose(self, match: Match, why: str, gone: bool) -> None:
        """Play a lost battle again. ``gone``: its connection is lost, too. Raises `Unplayable` after too many."""
        self._recovering = True
        slots = self._battles.slots_of(match)
        self._battles.lose(match, why, gone, int(self._logs.length[slots].sum()))
        if self._repeats:
            return
        self._broken[slots] |= self._waits[slots] | (self._logs.length[slots] > 0)
        ended, self._ended[slots] = self._ended.copy(), False
        self._logs.length[slots] = 0
        for slot in slots:
            self._held.pop(slot, None)
            if ended[slot]:  # those of an episode before are still to be received
                self._results.pop(slot, None)

    def _recover(self, slots: Array, rows: Rows) -> Array:
        """Take the rows [n] of battles that are played again; return which rows are new, [n]."""
        battles, length = self._battles, self._logs.length
        behind = battles.sent[slots] < length[slots]
        if some(behind):
            self._replay(slots[behind], rows.take(behind))
        known = ~behind & (self._waits[slots] | self._ended[slots] | self._broken[slots])
        for row in np.flatnonzero(known).tolist():
            self._repeat(int(slots[row]), rows.take(np.array([row])))
        again = (self._waits & ~battles.asked) | (self._ended & ~battles.over) | (battles.sent < length)
        self._recovering = not battles.playing or some(again | self._broken | self._loading)
        return ~behind & ~known

    def _replay(self, slots: Array, rows: Rows) -> None:
        """Send the next actions of episodes that are played again."""
        if rows.end.any():
            self._differs(int(slots[rows.end > 0][0]))
        self._battles.act(slots, self._logs.at(slots, self._battles.sent[slots]))

    def _repeat(self, slot: int, rows: Rows) -> None:
        """Take a row that a slot has had before: the last one of a replay, or the first of an episode begun anew."""
        if self._broken[slot]:
            if self._waits[slot]:
                self._held[slot] = rows
            else:
                self._show_anew(slot, rows)
        elif self._ended[slot]:
            if not rows.end[0]:
                self._differs(slot)
        elif self._loading[slot]:
            self._write(np.array([slot]), rows)
            self._loading[slot] = False
        elif not rows.shows(self._rows, slot):
            self._differs(slot)

    def _show_anew(self, slot: int, rows: Rows) -> None:
        """Report that the slot's last decision failed, and show the first state of the new attempt."""
        shown = self._rows
        self._broken[slot], self._waits[slot], self._cost[slot] = False, True, 0
        shown.reward[slot], shown.terminated[slot], shown.truncated[slot] = 0, False, False
        self._write(np.array([slot]), rows)
        self._results.pop(slot, None)
        self._failed.add(slot)
        self._fresh.append(slot)

    def _differs(self, slot: int) -> None:
        raise Unplayable(
            f"{self._offer.hello.game}, slot {slot}: the same seed and actions led to another state, though the game "
            "offers repeats=true; a game that does not repeat itself offers repeats=false"
        )

    # -------------------------------------------------------------- exact resume

    def state_dict(self) -> StateDict:
        waits = self._waits.copy()
        waits[self._fresh] = False
        waiting = np.flatnonzero(waits)
        lengths, actions = self._logs.state()
        state: StateDict = {
            "episode": np.array([match.number for match in self._battles.games], np.int64),
            "waits": waits, "broken": self._broken.copy(), "lengths": lengths, "actions": actions,
            "outcomes": self._outcomes_to_tell(~(waits | self._ended | self._broken)),
        }  # fmt: skip
        if self._repeats:
            digests = [digest(self._rows, slot) for slot in waiting.tolist()]
            return state | {"digests": np.array(digests, np.int64)}
        return state | {"seen": save_states(self._rows, waiting)}

    def _outcomes_to_tell(self, slots: Array) -> StateDict:
        """Those of ended episodes, of slots in this mask. No replay brings them, since the next episodes have begun."""
        rows, names = self._rows, ("length", *self._offer.hello.results)
        over = np.flatnonzero((rows.terminated | rows.truncated) & slots)
        results = [[self._results[slot][name] for name in names] for slot in over.tolist()]
        return {
            "slots": over, "reward": rows.reward[over], "terminated": rows.terminated[over],
            "truncated": rows.truncated[over], "cost": self._cost[over], "last": save_states(self._last, over),
            "results": np.array(results, np.float64).reshape(len(over), len(names)),
        }  # fmt: skip

    def _load_outcomes(self, state: StateDict) -> None:
        """The first rows of the next episodes will bring them."""
        rows, slots, names = self._rows, np.asarray(state["slots"]), ("length", *self._offer.hello.results)
        rows.reward[slots], self._cost[slots] = state["reward"], state["cost"]
        rows.terminated[slots], rows.truncated[slots] = state["terminated"], state["truncated"]
        restore_states(self._last, slots, state["last"])
        for slot, results in zip(slots.tolist(), state["results"].tolist(), strict=True):
            self._results[slot] = dict(zip(names, results, strict=True))

    def load_state_dict(self, state: StateDict) -> None:
        """Raises ValueError for another number of slots, `WorldError` if a replay reaches another state."""
        waits = np.array(state["waits"])
        if len(waits) != self.slots:
            raise ValueError(f"the state is of {len(waits)} slots, the arena has {self.slots}")
        self._battles.close()
        self._reset()
        for match, number in zip(self._battles.games, state["episode"], strict=True):
            match.number = int(number)
        if "outcomes" in state:  # missing in runs of older versions
            self._load_outcomes(state["outcomes"])
        slots = np.flatnonzero(waits)
        self._recovering = True
        if self._repeats:
            self._logs.load(state["lengths"], state["actions"])
            self._loading[:] = self._waits[:] = waits
            self._wait(lambda: not some(self._loading))
            for slot, expected in zip(slots.tolist(), state["digests"].tolist(), strict=True):
                if digest(self._rows, slot) != expected:
                    self._differs(slot)
        else:
            self._waits[:] = waits
            self._broken[:] = state["broken"] | waits | (np.asarray(state["lengths"]) > 0)
            restore_states(self._rows, slots, state["seen"])
        self._fresh = [slot for slot in self._fresh if not waits[slot]]
        self._restored = slots.tolist()
        self._clear_outcomes(slots)

    def _clear_outcomes(self, slots: Array) -> None:
        """Clear what was received before saving."""
        self._rows.reward[slots] = 0
        self._rows.terminated[slots] = self._rows.truncated[slots] = False
        self._cost[slots] = 0
        for slot in slots.tolist():
            self._results.pop(slot, None)
