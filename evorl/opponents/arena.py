"""An arena in which the learner plays one side of every game, or one team of sides, and frozen policies the others.

Letters in shapes: G games, P sides of each, S of a team; the wrapped arena has G P slots, this one G S.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Arena, Array, Closes, Decisions, StateDict, StepsTogether
from evorl.mdp.decision_arrays import empty_decisions, rule_actions
from evorl.opponents.deciders import NO_NETWORK, Deciders
from evorl.opponents.pool import LATEST, OWN, RULE, Table
from evorl.rl.evaluation import SlotNoise
from evorl.util import seed as seeds
from evorl.util.heartbeat import heartbeat
from evorl.util.seed import Episodes

RESULT = "opponent"
"""Name of the result that is the number of an episode's opponent."""
RETURN = "opponent_return"
"""Name of the result that is the mean return of the opponent's sides."""
NOBODY = -2


class OpponentArena(Closes):
    """Slots g S to g S + S - 1 are the learner's team in game g: in episode n that of number g + n, by turns. One
    opponent has all others.

    The opponent of an episode is a function of the episode's key, of the learner's side and of the table that was there
    when it began. The noise of its decisions is keyed by batch, slot and decision, so it does not depend on when
    observations arrive.
    """

    def __init__(
        self, arena: Arena, episodes: Episodes, deciders: Deciders, deterministic: bool, *words: int | str,
        sides: Sequence[int] | None = None, first: int = 0, team: int = 1,
    ) -> None:  # fmt: skip
        """``arena``: of all sides, with these keys; ``deciders`` has a place for each opposing side; ``words`` name
        the noise. ``sides``: the teams that the learner plays; None: all. ``first``: the number of game 0 among those
        of all members. ``team``: S."""
        games = arena.slots // arena.sides
        self.arena, self.spec, self.sides, self.slots = arena, arena.spec, team, games * team
        self._episodes, self._deciders, self._first = episodes, deciders, first
        self._deterministic, self._words = deterministic, words
        self._sides = np.arange(arena.sides // team) if sides is None else np.array(sides)
        self._begin_batch(0)
        self._out = empty_decisions(self.spec, self.slots)
        self.number = np.zeros(games, np.int64)  # episode of the game, as far as the learner knows
        self.opponent = np.full(games, NOBODY)  # in that episode
        self._episode = np.zeros(arena.slots, np.int64)  # of each side
        self._waiting = np.zeros(arena.slots, np.bool_)  # sides that wait for an action
        self._asked = np.zeros(self.slots, np.bool_)  # slots that wait for the learner's action
        self._game = np.arange(self.slots) // team  # of each slot
        self._acting = np.full(self.slots, -1)  # the side whose last action has no outcome yet, -1 where it has one
        self._side = np.zeros(self.slots, np.int64)  # the learner's, as a slot of the wrapped arena
        self._place = np.zeros((games, arena.sides - team), np.int64)  # of each opposing side, likewise
        self._sent = np.zeros(arena.slots, np.bool_)  # sides whose last action has no outcome yet
        self._return, self._whole = np.zeros((2, arena.slots))  # of each side: so far, and of its last episode
        self._game_of_place = np.arange(self._place.size) // max(1, arena.sides - team)
        self._actions = rule_actions(self.spec, arena.slots)  # those that are sent, by the side
        self._seated = np.zeros(games, np.bool_)  # the opponent has its places
        self._policies: dict[int, tuple[int, Sequence[Tensor]]] = {}  # form and weights of everyone, by number
        self._chances = np.zeros((1, 0))  # of everyone in the table, added up; a row for all sides or for each
        self._turns = np.zeros(0, np.int64)  # who comes by turns, by the place in the table
        self._take_sides(np.arange(games))

    def use(self, table: Table, latest: Sequence[Tensor], batch: int) -> None:
        """Choose opponents from this table in the batch of this number; ``latest``: the learner's weights in it."""
        self._begin_batch(batch)
        self._chances = np.cumsum(np.atleast_2d(table.chances), 1)
        self._turns = 1 + np.flatnonzero(table.chances[1:]) if table.cycle else self._turns[:0]
        policies = zip(table.forms.tolist(), table.weights, strict=True)
        self._policies = {LATEST: (OWN, latest), **dict(zip(table.numbers.tolist(), policies, strict=True))}
        for game in np.flatnonzero(self.opponent == NOBODY).tolist():
            self._choose(game)
        self._deciders.renew(OWN, LATEST, latest)

    def _begin_batch(self, batch: int) -> None:
        """Key the noise of opponents by the batch, so that slots which decide more often do not run ahead for ever."""
        self._batch = batch
        action, places = self.spec.action, self._deciders.places
        self._noise = SlotNoise(action, places, *self._words, batch, deterministic=self._deterministic)

    def seated(self) -> Array:
        """The numbers of the opponents that play now, each once."""
        return np.unique(self.opponent)

    # -------------------------------------------------------------- the arena of the learner

    def recv(self) -> Decisions:
        out = self._out
        out.results, out.failed, out.cost = [], [], 0
        ready = np.zeros(self.slots, np.bool_)
        while not ready.any():
            if not self._asked.all():  # a game whose learner acts may need its other sides
                self._send(np.zeros(0, np.int64), self._actions[:0])
            heartbeat()
            self._decisions = self.arena.recv()
            self._receive(self._decisions)
            ready = ~self._asked & (self._acting < 0) & self._waits(self._side, self._game)
        out.slots = np.flatnonzero(ready)
        self._asked[out.slots] = True
        shown = self._side[out.slots]
        for mine, theirs in zip(out.inputs, self._decisions.inputs, strict=True):
            mine[out.slots] = theirs.take(shown, 0)
        if out.legal is not None and self._decisions.legal is not None:
            out.legal[out.slots] = self._decisions.legal[shown]
        return out

    def send(self, slots: Array, actions: Array) -> None:
        out = self._out
        out.reward[slots] = 0
        out.terminated[slots] = out.truncated[slots] = False
        self._asked[slots] = False
        self._acting[slots] = self._side[slots]
        self._send(self._side[slots], actions)

    def render(self, slot: int = 0) -> Array | None:
        return self.arena.render(int(self._game[slot]) * self.arena.sides)

    def state_dict(self) -> StateDict:
        return {
            "arena": self.arena.state_dict(), "number": self.number.copy(), "opponent": self.opponent.copy(),
            "episode": self._episode.copy(), "batch": self._batch, "noise": self._noise.t.copy(),
            "deciders": self._deciders.state_dict(), "sent": self._sent.copy(), "return": self._return.copy(),
            "whole": self._whole.copy(),
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        """The next `use` must bring the opponents of the games that go on.

        Raises ValueError for another number of slots.
        """
        if len(state["number"]) != len(self.number):
            raise ValueError(f"the state holds {len(state['number'])} games, this arena {len(self.number)}")
        self.arena.load_state_dict(state["arena"])
        self.number[:], self.opponent[:], self._episode[:] = state["number"], state["opponent"], state["episode"]
        self._take_sides(np.arange(len(self.number)))
        self._begin_batch(int(state["batch"]))
        self._noise.t[:] = state["noise"]
        self._sent[:] = state.get("sent", False)  # older states lack these three
        self._return[:], self._whole[:] = state.get("return", 0.0), state.get("whole", 0.0)
        self._deciders.load_state_dict(state["deciders"])
        self._waiting[:] = self._asked[:] = False
        self._acting[:] = -1
        self._seated[:] = False
        out = self._out
        out.reward[:] = 0
        out.terminated[:] = out.truncated[:] = False

    def close(self) -> None:
        self.arena.close()

    # -------------------------------------------------------------- sides

    def _receive(self, decisions: Decisions) -> None:
        """Note which sides wait, and the outcomes of the learner's actions."""
        rows, out = decisions.slots, self._out
        out.cost += decisions.cost
        self._waiting[rows] = True
        over = decisions.terminated | decisions.truncated
        self._episode[rows[over[rows]]] += 1
        self._add_rewards(rows, decisions)
        if decisions.failed:
            self._deciders.begin(self._place_of(np.array(decisions.failed)))
        slots = np.flatnonzero(self._acting >= 0)
        slots = slots[self._waiting[self._acting[slots]]]
        rows = self._acting[slots]
        self._acting[slots] = -1
        out.reward[slots] = decisions.reward[rows]
        out.terminated[slots], out.truncated[slots] = decisions.terminated[rows], decisions.truncated[rows]
        out.failed += slots[np.isin(rows, decisions.failed)].tolist() if decisions.failed else []
        ended = over[rows]
        if ended.any():
            self._end(slots[ended], rows[ended], decisions)

    def _add_rewards(self, rows: Array, decisions: Decisions) -> None:
        """Add up the returns of these sides."""
        acted = rows[self._sent[rows]]
        self._sent[rows] = False
        self._return[acted] += decisions.reward[acted].sum(1)
        self._return[decisions.failed] = 0
        ended = rows[decisions.terminated[rows] | decisions.truncated[rows]]
        told = dict(decisions.results)  # the world's own return, where a wrapper changes rewards
        self._whole[ended] = [told.get(row, {}).get("return", self._return[row]) for row in ended.tolist()]
        self._return[ended] = 0

    def _end(self, slots: Array, rows: Array, decisions: Decisions) -> None:
        """End the episodes of these slots, in which the learner decided for these sides."""
        out, results = self._out, dict(decisions.results)
        cut = decisions.truncated[rows]
        for mine, theirs in zip(out.final, decisions.final, strict=True):
            mine[slots[cut]] = theirs[rows[cut]]
        if out.final_legal is not None and decisions.final_legal is not None:
            out.final_legal[slots[cut]] = decisions.final_legal[rows[cut]]
        for slot, row in zip(slots.tolist(), rows.tolist(), strict=True):
            if row in results:
                game = self._game[slot]
                told = {RESULT: float(self.opponent[game]), RETURN: self._opponents_return(game)}
                out.results.append((slot, {**results[row], **told}))
        games = np.unique(self._game[slots])
        left = self._episode[self._side].reshape(-1, self.sides)[games] == self.number[games, None]
        games = games[~left.any(1)]  # all sides of the team have ended
        self.number[games] += 1
        self._take_sides(games)
        for game in games.tolist():
            self._choose(game)

    def _opponents_return(self, game: int) -> float:
        """The mean return of the sides that the opponent has in the present episode of a game, which is over."""
        sides = self._place[game]
        over = self._episode[sides] > self.number[game]  # one may be told of the end later than the learner
        return float(np.where(over, self._whole[sides], self._return[sides]).mean()) if len(sides) else 0.0

    def _take_sides(self, games: Array) -> None:
        """Give the learner and the opponents their sides of the present episodes."""
        sides, team = self.arena.sides, self.sides
        own = (self._sides[(games + self.number[games]) % len(self._sides)] * team)[:, None]  # the first of the team
        first = games[:, None] * sides
        self._side.reshape(-1, team)[games] = first + own + np.arange(team)
        others = np.arange(sides - team)
        self._place[games] = first + others + team * (others >= own)
        self._deciders.begin(np.arange(self._place.size).reshape(self._place.shape)[games])

    def _waits(self, sides: Array, games: Array) -> Array:
        """Whether these sides wait in the present episodes of these games."""
        waits: Array = self._waiting[sides] & (self._episode[sides] == self.number[games])
        return waits

    def _place_of(self, sides: Array) -> Array:
        """The places that decide for those of ``sides`` that opponents play."""
        places: Array = np.flatnonzero(np.isin(self._place.reshape(-1), sides))
        return places

    def _send(self, sides: Array, actions: Array) -> None:
        """Send the learner's actions for ``sides``, and those of all opponents that wait."""
        if not self._waiting.any():
            return
        flat = self._place.reshape(-1)
        places = np.flatnonzero(self._waits(flat, self._game_of_place))
        self._actions[sides] = actions
        if len(places):
            self._actions[flat[places]] = self._decide(places)
            sending = np.zeros(len(self._waiting), np.bool_)
            sending[sides] = sending[flat[places]] = True
            sides = np.flatnonzero(sending)
        if len(sides):
            self._waiting[sides], self._sent[sides] = False, True
            self.arena.send(sides, self._actions[sides])

    # -------------------------------------------------------------- opponents

    def _decide(self, places: Array) -> Array:
        """The actions [n, K] of these places in the present states of their sides."""
        flat, decisions = self._place.reshape(-1), self._decisions
        if not self._seated.all():
            self._seat(np.flatnonzero(~self._seated))
        inputs = tuple(torch.from_numpy(x.take(flat, 0)) for x in decisions.inputs)
        legal = None if decisions.legal is None else torch.from_numpy(decisions.legal.take(flat, 0))
        return self._deciders.decide(places, inputs, legal, self._noise.take(places))

    def _choose(self, game: int) -> None:
        """Draw the opponent of the game's present episode."""
        key = int(self._episodes(game, self.number[game]))
        own = np.array(seeds.key("opponent", key), np.uint64)  # a stream of its own: worlds draw from the key
        drawn = seeds.uniform(own, 0)
        chances = self._chances[self._side[game * self.sides] % self.arena.sides // self.sides % len(self._chances)]
        which = int(np.searchsorted(chances, drawn * chances[-1], "right"))
        if which and len(self._turns):  # against each on every side of the learner, then against the next
            turn = self._first + game + self.number[game] // len(self._sides)
            which = int(self._turns[turn % len(self._turns)])
        self.opponent[game] = list(self._policies)[min(which, len(self._policies) - 1)]
        self._seated[game] = False

    def _seat(self, games: Array) -> None:
        """Give the places of these games to their opponents."""
        others = self._place.shape[1]
        for game in games.tolist():
            number = int(self.opponent[game])
            form, weights = self._policies[number]
            for place in range(game * others, (game + 1) * others):
                self._deciders.put(place, NO_NETWORK if number == RULE else form, number, weights)
            self._seated[game] = True


class OpponentsTogether(OpponentArena, StepsTogether):
    """The same where all slots step together."""
