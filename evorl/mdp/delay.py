"""A wrapper that makes every decision of a world take random wall time, to test slow worlds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from evorl.mdp.core import MDP, Array, Battle, Controller, Spec, State, Step
from evorl.util.seed import generator


class Delayed:
    """The same world, but each decision first sleeps for a random time.

    ``delay_ms`` is the range [low, high] in milliseconds, drawn uniformly per decision from a generator keyed by
    (episode key, player). The episodes themselves do not change.
    """

    def __init__(self, mdp: MDP, delay_ms: tuple[float, float]) -> None:
        self.mdp = mdp
        self.delay_ms = delay_ms

    @property
    def spec(self) -> Spec:
        return self.mdp.spec

    @property
    def channels_last(self) -> Sequence[str]:
        return getattr(self.mdp, "channels_last", ())

    def reset(self, *players: int, seed: int) -> Battle:
        sleeps = [generator("delay", seed, player) for player in players]
        return _Battle(self.mdp.reset(*players, seed=seed), self.delay_ms, sleeps)

    def close(self) -> None:
        self.mdp.close()


def name_of(mdp: MDP) -> str:
    """What messages call an MDP, also if it is delayed."""
    return type(mdp.mdp if isinstance(mdp, Delayed) else mdp).__name__


class _Battle:
    def __init__(self, battle: Battle, delay_ms: tuple[float, float], sleeps: list[np.random.Generator]) -> None:
        self._battle = battle
        self._delay_ms = delay_ms
        self._sleeps = sleeps

    @property
    def controllers(self) -> Sequence[Controller]:
        inner = self._battle.controllers
        return [_Controller(c, self._delay_ms, sleep) for c, sleep in zip(inner, self._sleeps, strict=True)]

    def render(self) -> Array | None:
        draw = getattr(self._battle, "render", None)
        return None if draw is None else draw()

    @property
    def seconds(self) -> float | None:
        return getattr(self._battle, "seconds", None)

    @property
    def on_frame(self) -> Callable[[], None] | None:
        return getattr(self._battle, "on_frame", None)

    @on_frame.setter
    def on_frame(self, hook: Callable[[], None] | None) -> None:
        if hasattr(self._battle, "on_frame"):
            self._battle.on_frame = hook

    async def __aenter__(self) -> Self:
        await self._battle.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._battle.__aexit__(kind, error, trace)


class _Controller:
    def __init__(self, inner: Controller, delay_ms: tuple[float, float], sleep: np.random.Generator) -> None:
        self._inner = inner
        self._delay_ms = delay_ms
        self._sleep = sleep

    @property
    def state(self) -> State:
        return self._inner.state

    async def __call__(self, action: Array) -> Step:
        await asyncio.sleep(self._sleep.uniform(*self._delay_ms) / 1000)
        return await self._inner(action)

    async def act_without_delay(self, action: Array) -> Step:
        """Act without sleeping, for replays. The sleep is still drawn, so that later ones stay the same."""
        self._sleep.uniform(*self._delay_ms)
        return await self._inner(action)

    def result(self) -> Mapping[str, float]:
        return self._inner.result()

    def results_so_far(self) -> Mapping[str, float]:
        tell = getattr(self._inner, "results_so_far", None)
        return {} if tell is None else tell()
