"""A trained policy that acts on observations as an environment gives them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evorl.api.threads import threads
from evorl.mdp.core import Array, Box, Discrete, Spec, World, first_choices, heads
from evorl.mdp.forms import Form, Mismatch, as_array
from evorl.nets.distributions import draw_noise, noise_size
from evorl.rl.core import Episode, Learner, play_of
from evorl.rl.evaluation import MAX_STEPS
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest

log = logging.getLogger("evorl")
ReadInputs = Callable[[Any], tuple[tuple[Array, ...], bool]]
CALLER = "the caller"


class Policy:
    """A policy as a function of observations. It keeps nothing between calls but the number of drawn actions, and
    several threads may call it."""

    def __init__(
        self, learner: Learner, world: World, seed: int = 0, threads: int | None = None, max_steps: int = MAX_STEPS
    ) -> None:
        """``seed`` is that of drawn actions (``deterministic=False``). It computes with so many ``threads`` of PyTorch;
        None: as many as the process. `evaluate` truncates episodes after ``max_steps`` environment steps."""
        self.learner, self.world, self.seed, self.threads, self.max_steps = learner, world, seed, threads, max_steps
        self._spaces = world.environment_spaces()
        reads = None if self._spaces is None else _by_space(self._spaces[0], len(learner.spec.inputs))
        self._read: ReadInputs = reads or _by_spec(learner.spec)
        self._plays = reads is not None or self._spaces is None
        self._heads = [_given(f"legal of head {head}", (n,), bool) for head, n in enumerate(heads(learner.spec.action))]
        self._mask = _given("legal", (sum(heads(learner.spec.action)),), bool) if learner.spec.masked else None
        self._firsts = first_choices(learner.spec.action)
        self._encode = _encoding(learner.spec, None if self._spaces is None else self._spaces[1])
        self._decide, self._recurrent = play_of(learner), learner.carry(1) is not None
        self._draws = count(1)
        self._still = torch.zeros(1, noise_size(learner.spec.action))  # the noise of deterministic actions

    @property
    def spec(self) -> Spec:
        """The arrays that the network sees, and the actions that it takes."""
        return self.learner.spec

    @property
    def recurrent(self) -> bool:
        """Whether `act` takes and returns a state."""
        return self._recurrent

    def act(self, observation: Any, legal: Any = None, state: Tensor | None = None, deterministic: bool = True) -> Any:
        """Return the action for an observation, or the actions for a batch of them, as the environment takes them.

        ``observation`` is what the environment returns (a dict, a tuple, an image), one or with a first axis of many.
        Worlds that are no gymnasium environments take the arrays of ``policy.spec.inputs``: one array, a tuple, or a
        dict by name, and count choices from 0. A policy that observes more than its environment returns
        (``mdp.features``) takes these arrays as well. ``legal`` is the mask [L] or [B, L] of legal actions, or one of
        each head (MultiDiscrete); without it all are.

        A recurrent policy returns ``(action, state)``. Give the state to the next call; None begins an episode.
        ``state[:, b] = 0`` begins one in row b.

        Raises `evorl.mdp.forms.Mismatch` for an observation that is not of the world's space or not finite, for a mask
        without a legal action, and for a mask or a state that does not fit; `BadRequest` for a mask or a state that
        this policy would not look at.
        """
        if self.threads in (None, torch.get_num_threads()):
            return self._act(observation, legal, state, deterministic)
        with threads(self.threads):
            return self._act(observation, legal, state, deterministic)

    def _act(self, observation: Any, legal: Any, state: Tensor | None, deterministic: bool) -> Any:
        if legal is not None and self._mask is None:
            raise BadRequest("this policy takes no mask, since its world declares none (masked)", "legal")
        if state is not None and not self.recurrent:
            raise BadRequest("this policy has no memory (rl.net.lstm), so it takes no state", "state")
        inputs, single = self._read(observation)
        rows = len(inputs[0])
        mask = None if self._mask is None else torch.from_numpy(self._legal(self._mask, legal, rows))
        carry = self.learner.carry(rows) if self._recurrent else None
        start = None if carry is None else torch.full((rows,), state is None)
        if carry is not None and state is not None:
            carry = _fitting(state, carry)
        noise = self._noise(rows, deterministic)
        decision = self._decide(tuple(map(torch.from_numpy, inputs)), mask, noise, carry, start)
        actions = self._encode(decision.played.numpy())
        action = actions[0] if single else [*actions]
        return action if decision.carry is None else (action, decision.carry.clone())  # clone: no inference tensor

    def play(
        self, env: Any, episodes: int = 1, seed: int | None = None, deterministic: bool = True,
        max_steps: int = MAX_STEPS,
    ) -> list[PlayedEpisode]:  # fmt: skip
        """Play whole episodes of a gymnasium environment, one after the other. ``seed`` is that of the first reset.

        An episode that has not ended after ``max_steps`` is left, with a warning. Raises `BadRequest` for a vector of
        environments, and for a policy that observes more than the environment returns.
        """
        episodes, max_steps = at_least(1, episodes, "episodes"), at_least(1, max_steps, "max_steps")
        seed = None if seed is None else at_least(0, seed, "seed")
        if isinstance(env, type) or not callable(getattr(env, "reset", None)):
            raise BadRequest(f"expected an environment, such as gymnasium.make(...) returns, got {env!r:.100}", "env")
        if hasattr(env, "num_envs"):
            raise BadRequest("play takes one environment, not a vector of them; evaluate() plays many at once", "env")
        if not self._plays:
            names = ", ".join(entry.name for entry in self.spec.inputs)
            raise BadRequest(
                f"this policy observes {names}, and an environment alone does not tell all of it (mdp.features): "
                "evaluate() plays the run's world, and act() takes these arrays"
            )
        seeded = [seed, *[None] * (episodes - 1)][:episodes]
        return [self._play(env, seed, deterministic, max_steps) for seed in seeded]

    def evaluate(self, episodes: int = 60, seed: int = 0, deterministic: bool = True) -> list[Episode]:
        """Play evaluation episodes of the run's world, many at once; the same bits each time."""
        from evorl.rl.evaluation import play_episodes

        episodes, seed = at_least(1, episodes, "episodes"), at_least(0, seed, "seed")
        with threads(self.threads):
            return play_episodes(self.learner, self.world, seed, episodes, self.max_steps, deterministic=deterministic)

    def _play(self, env: Any, seed: int | None, deterministic: bool, max_steps: int) -> PlayedEpisode:
        observation, info = env.reset(seed=seed)
        total, length, over, state = 0.0, 0, False, None
        while not over and length < max_steps:
            action = self.act(observation, self._mask_of(env, info), state, deterministic)
            if self.recurrent:
                action, state = action
            observation, reward, terminated, truncated, info = env.step(action)
            total, length, over = total + float(reward), length + 1, terminated or truncated
        if not over:
            log.warning("an episode had no end and was left after %s steps (max_steps)", f"{max_steps:,}")
        return PlayedEpisode(total, length)

    def _mask_of(self, env: Any, info: Any) -> Any:
        """The legal actions that an environment reports, where this policy takes a mask."""
        if self._mask is None:
            return None
        ask = getattr(env.unwrapped, "action_masks", None)
        return ask() if callable(ask) else info.get("action_mask")

    def _noise(self, rows: int, deterministic: bool) -> Tensor:
        if deterministic:
            still = self._still  # another thread may put one of other rows in its place
            if rows != len(still):
                still = self._still = torch.zeros(rows, still.shape[1])
            return still
        draw = seeds.generator(self.seed, "policy", next(self._draws))
        return torch.from_numpy(draw_noise(self.spec.action, draw, (rows,)))

    def _legal(self, form: Form, legal: Any, rows: int) -> Array:
        """The mask [rows, L] of this form."""
        if legal is None:
            return np.ones((rows, *form.shape), np.bool_)
        if self._of_heads(legal):
            whole = np.concatenate([_rows(form, part, rows) for form, part in zip(self._heads, legal, strict=True)], 1)
        else:
            whole = _rows(form, legal, rows)
        whole = whole.astype(bool)
        if not (open_ := np.logical_or.reduceat(whole, self._firsts, 1)).all():
            row, head = np.argwhere(~open_)[0]
            where = f" in row {row}" if rows > 1 else ""
            of_head = f" of head {head}" if len(self._heads) > 1 else ""
            raise Mismatch(f"legal{of_head} allows at least one action, and {CALLER} gave none{where}")
        return whole

    def _of_heads(self, legal: Any) -> bool:
        """Whether a mask comes as one of each head. A batch of whole masks is a list as well, but of other sizes."""
        if not isinstance(legal, tuple | list) or len(legal) != len(self._heads):
            return False
        return all(as_array(part).shape[-1:] == form.shape for form, part in zip(self._heads, legal, strict=True))


class PlayedEpisode(NamedTuple):
    """The sum of an episode's rewards, and its number of steps."""

    ret: float
    length: int


def _encoding(spec: Spec, space: Any) -> Callable[[Array], Any]:
    """What makes actions [B, K] those of a gymnasium space; without one they are numbers, or arrays [K]."""
    discrete = isinstance(spec.action, Discrete)
    if space is None:
        return lambda played: played[:, 0].tolist() if discrete else played.copy()
    if isinstance(spec.action, Box) and (space.dtype, space.shape) == (np.float32, (len(spec.action.low),)):
        return lambda played: played.copy()  # they are the space's as they are
    from evorl.mdp.gymnasium.spaces import encode, encode_all

    return partial(encode if discrete else encode_all, space)


def _by_space(space: Any, number: int) -> ReadInputs | None:
    """Read observations of a gymnasium space; None unless it has this number of inputs, those of a policy."""
    from evorl.mdp.gymnasium.spaces import check_members
    from evorl.mdp.gymnasium.spaces import observation as inputs_of

    inputs = [(replace(x, form=x.form.given_by(CALLER)), np.dtype(entry.dtype)) for entry, x in inputs_of(space)]
    if len(inputs) != number:
        return None
    first, dtype = inputs[0]
    alone = number == 1 and not first.path

    def read(seen: Any) -> tuple[tuple[Array, ...], bool]:
        if alone and first.form.fits(seen):  # as below, in half the time
            return (_input(first.form, first.convert(seen), dtype, ()),), True
        if first.path:
            check_members(space, seen)
        batch = _batch(first.form, _at(seen, first.path))
        try:
            return tuple(_input(part.form, part(seen, batch), dtype, batch) for part, dtype in inputs), not batch
        except Mismatch:
            _check_rows([(part.form, _at(seen, part.path)) for part, _ in inputs])
            raise

    return read


def _by_spec(spec: Spec) -> ReadInputs:
    """Read the arrays of a spec: one array, a tuple, or a dict by name."""
    names = [entry.name for entry in spec.inputs]
    forms = [_given(f"the input {entry.name!r}", entry.shape, entry.dtype) for entry in spec.inputs]

    def read(seen: Any) -> tuple[tuple[Array, ...], bool]:
        if isinstance(seen, dict):
            if {*seen} != {*names}:
                raise Mismatch(f"the inputs are {', '.join(names)}, and {CALLER} gave {', '.join(map(str, seen))}")
            seen = tuple(seen[name] for name in names)
        parts = seen if isinstance(seen, tuple) else (seen,)
        if len(parts) != len(names):
            raise Mismatch(f"a tuple has a part for each input ({', '.join(names)}), and {CALLER} gave {len(parts)}")
        batch = _batch(forms[0], parts[0])
        try:
            fitted = [(form, form.fit(x, batch)) for form, x in zip(forms, parts, strict=True)]
        except Mismatch:
            _check_rows(list(zip(forms, parts, strict=True)))
            raise
        return tuple(_input(form, x, form.dtype, batch) for form, x in fitted), not batch

    return read


def _input(form: Form, x: Array, dtype: Any, batch: tuple[int, ...]) -> Array:
    """An input as the network takes it: rows of bytes, or of finite numbers. Raises `Mismatch`."""
    x = x if batch else x[None]
    if x.dtype == dtype:
        x = np.ascontiguousarray(x)
    else:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
            x = np.ascontiguousarray(x, dtype)
    if dtype != np.uint8 and not _finite(x):
        raise Mismatch(f"{form.name} has finite numbers in float32, and {CALLER} gave {x[~np.isfinite(x)][0]}")
    return x


def _finite(x: Array) -> bool:
    """Whether all numbers are finite. Between PyTorch's operations an operation of NumPy takes 10 us, so few numbers
    are added by Python, whose sum of float32 cannot overflow."""
    if x.size <= 128:
        return math.isfinite(sum(x.ravel().tolist()))
    return math.isfinite(np.vdot(x, x)) or bool(np.isfinite(x).all())


def _batch(form: Form, first: Any) -> tuple[int, ...]:
    """The first axis of the data of many observations; none for one, and for what `Form.fit` refuses."""
    x = first if type(first) is np.ndarray else as_array(first)
    if x.ndim != 1 + len(form.shape):
        return ()
    if not len(x):
        raise Mismatch(f"{form.name} has no rows: {CALLER} gave {list(x.shape)}")
    return (len(x),)


def _at(seen: Any, path: Sequence[Any]) -> Any:
    """The part of an observation at a path of names and numbers."""
    for key in path:
        seen = seen[key]
    return seen


def _check_rows(parts: Sequence[tuple[Form, Any]]) -> None:
    """Raise `Mismatch` where the parts of an observation, each sound by itself, have unlike numbers of rows."""
    rows = {form.name: batch[0] for form, x in parts if (batch := _batch(form, x))}
    if len({*rows.values()}) > 1:
        told = ", ".join(f"{number} of {name}" for name, number in rows.items())
        raise Mismatch(f"all inputs have as many rows, and {CALLER} gave {told}")


def _given(name: str, shape: tuple[int, ...], dtype: Any) -> Form:
    return Form(name, shape, dtype, giver=CALLER)


def _rows(form: Form, mask: Any, rows: int) -> Array:
    """A mask as [rows, L]; of one row its only axis will do."""
    single = rows == 1 and as_array(mask).ndim == 1
    return form.fit(mask, () if single else (rows,)).reshape(rows, -1)


def _fitting(state: Any, carry: Tensor) -> Tensor:
    """The state, if it has the form of ``carry``. Torch would broadcast that of one episode to many."""
    if not isinstance(state, Tensor):
        raise Mismatch(f"state is the tensor that act returned, and {CALLER} gave a {type(state).__name__}")
    if (state.shape, state.dtype) != (carry.shape, carry.dtype):
        forms = [f"{str(x.dtype).removeprefix('torch.')} {[*x.shape]}" for x in (carry, state)]
        raise Mismatch(f"state of so many observations is {forms[0]}, and {CALLER} gave {forms[1]}")
    return state


def at_least(least: int, number: Any, key: str) -> int:
    """Return a whole number that is not less. Raises `BadRequest` at ``key`` for anything else."""
    if not isinstance(number, Integral) or int(number) < least:
        raise BadRequest(f"expected int >= {least}, got {number}", key)
    return int(number)
