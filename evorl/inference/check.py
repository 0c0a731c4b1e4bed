"""An exported policy beside the learner's own: the same observations, decision by decision, over whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.inference.module import Answer, PolicyModule, Seen
from evorl.inference.side import OfSide, answer_of
from evorl.mdp.core import Array, Box, World
from evorl.nets.distributions import MASKED
from evorl.rl.core import Decision, Episode
from evorl.rl.evaluation import EvaluationNoise, episodes_per_slot, in_whole_games, limited_arena, play_slots
from evorl.rl.network_learner import NetworkLearner
from evorl.util import seed as seeds

Run = Callable[[dict[str, Array]], dict[str, Array]]
"""A program: from the inputs to the outputs, by name."""
SLOTS = 2
"""Episodes at once while a file is compared, at least."""
TOLERANCE = 1e-5
"""Largest difference between numbers of two runtimes, of the number where that is above 1."""


def onnx_program(content: bytes, threads: int = 1) -> Run:
    """ONNX Runtime on the CPU with this model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feed: dict[str, Array]) -> dict[str, Array]:
        return dict(zip(names, session.run(None, feed), strict=True))

    return run


def torch_program(module: torch.nn.Module, form: PolicyModule) -> Run:
    """A module that torch.export has loaded; ``form`` names its inputs and outputs."""

    def run(feed: dict[str, Array]) -> dict[str, Array]:
        with torch.no_grad():
            outputs = module(*(torch.from_numpy(feed[port.name]) for port in form.inputs))
        return {port.name: x.numpy() for port, x in zip(form.outputs, outputs, strict=True)}

    return run


class Compared:
    """The acting side of a learner, which asks a program for each decision as well.

    The learner's decisions are played. Both have the same observations and noise, and each its own recurrent state, so
    that what it forgets or adds shows until the episode ends. A carry holds both: [2, B, 2 H].
    """

    def __init__(self, learner: NetworkLearner[Any], form: PolicyModule, run: Run, side: OfSide | None = None) -> None:
        """``side``: of which the program decides, where the learner has a network for each; the other rows are not
        compared."""
        self.learner, self.form, self.run, self.spec, self.side = learner, form, run, learner.spec, side
        self.difference = 0.0
        """Largest of all so far, of numbers in the outputs."""
        self.wrong = 0
        """Choices that differ, where the two best are further apart than rounding."""
        self.decisions = 0

    def carry(self, slots: int) -> Tensor | None:
        own = self.learner.carry(slots)
        return None if own is None else torch.cat([own, own], -1)

    def act(
        self,
        inputs: tuple[Tensor, ...],
        legal: Tensor | None,
        noise: Tensor,
        carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:
        own, rest = (None, None) if carry is None else carry.chunk(2, -1)
        decision = self.learner.act(inputs, legal, noise, own, start)
        state = None if rest is None or start is None else (rest * ~start[:, None]).transpose(0, 1).flatten(1)
        seen = Seen(
            tuple(x.numpy() for x in inputs), None if legal is None else legal.numpy(),
            None if state is None else state.numpy(), noise.numpy(),
        )  # fmt: skip
        rows = np.ones(len(noise), np.bool_) if self.side is None else self.side.rows(inputs)
        answer = self.form.read(self.run(self.form.feed(seen if self.side is None else self.side.seen(seen))))
        played, scores = decision.played.numpy(), self.scores(inputs, legal, own, start)
        if self.side is not None:
            played, scores = self.side.played(played), self.side.scores(scores)
        self.compare(played[rows], scores[rows], answer_of(answer, rows), noise.numpy()[rows])
        self.decisions += int(rows.sum())
        if decision.carry is None or answer.state is None:
            return decision
        other = torch.from_numpy(np.array(answer.state)).unflatten(1, (2, -1)).transpose(0, 1)
        self.differ(decision.carry.numpy()[:, rows], other.numpy()[:, rows])
        return decision._replace(carry=torch.cat([decision.carry, other], -1))

    def scores(
        self, inputs: tuple[Tensor, ...], legal: Tensor | None, carry: Tensor | None, start: Tensor | None
    ) -> Array:
        """The learner's own logits or values [B, L] (masked); of a Box its raw outputs."""
        learner = self.learner
        statistics = () if learner.moments is None else learner.moments.tensors(learner.device)
        with torch.inference_mode():
            if carry is None or start is None:
                raw = learner.forward(learner.theta, statistics, inputs).raw
            else:
                ahead = tuple(x[None] for x in inputs)
                raw = learner.forward(learner.theta, statistics, ahead, carry, start[None]).raw[0]
            return (raw if legal is None else raw.masked_fill(~legal, MASKED)).numpy()

    def compare(self, played: Array, scores: Array, answer: Answer, noise: Array) -> None:
        """Add the differences between a decision of the learner and the program's."""
        if answer.scores is not None:
            self.differ(scores, answer.scores)
        if isinstance(self.spec.action, Box):
            self.differ(played, answer.played)
            return
        for wanted, got, part in zip(played.T, answer.played.T, self.form.heads(scores), strict=True):
            for row in np.flatnonzero(wanted != got):
                self.wrong += not self._near(part[row], int(wanted[row]), int(got[row]))

    def _near(self, scores: Array, choice: int, other: int) -> bool:
        """Whether rounding decides between two choices."""
        return bool(abs(scores[choice] - scores[other]) <= TOLERANCE * max(1.0, abs(scores[choice])))

    def differ(self, expected: Array, actual: Array) -> None:
        gap = np.abs(expected - actual) / np.maximum(1.0, np.abs(expected))
        self.difference = max(self.difference, float(gap.max(initial=0.0)))
        if not np.isfinite(actual).all():
            self.difference = float("inf")

    @property
    def agrees(self) -> bool:
        return self.wrong == 0 and self.difference <= TOLERANCE

    def play_games(
        self, world: World, seed: int, episodes: int, max_steps: int, *, deterministic: bool
    ) -> list[Episode]:
        """Play evaluation episodes of ``seed``, several in each slot, so that the state begins anew in between."""
        world = world.evaluation_world()
        slots = in_whole_games(world, SLOTS)
        arena = limited_arena(world, slots, seeds.Episodes(seed, "evaluate", evaluation=True), max_steps)
        try:
            numbers = episodes_per_slot(max(episodes, 2 * slots), slots)
            done = play_slots(arena, self, EvaluationNoise(arena, seed, deterministic), numbers)
        finally:
            arena.close()
        return [episode for slot in done for episode in slot]
