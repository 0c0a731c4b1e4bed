"""An exported policy beside the learner's own: the same observations, decision by decision, over whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.inference.module import Answer, PolicyModule, Seen, components
from evorl.inference.side import OfSide, answer_of
from evorl.inference.units import Encode
from evorl.jobs.foreign_policies import units
from evorl.mdp.core import Array, Box, World
from evorl.nets.distributions import MASKED
from evorl.rl.core import Decision, Episode
from evorl.rl.evaluation import EvaluationNoise, episodes_per_slot, in_whole_games, limited_arena, play_slots
from evorl.rl.network_learner import NetworkLearner
from evorl.util import seed as seeds

Run = Callable[[dict[str, Array]], dict[str, Array]]
"""A program: from the inputs to the outputs, by name."""
SLOTS = 2
"""Episodes at once while a file is compared, at least; one in a game that connects by itself and may play no more."""
TOLERANCE = 1e-5
"""Largest difference between numbers of two runtimes, as a part of their scale (`scale_of`)."""
STEP = 1e-4
"""Part of itself by which each weight moves to measure the scale."""


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

    def __init__(
        self, learner: NetworkLearner[Any], form: PolicyModule, run: Run, side: OfSide | None = None,
        encode: Encode = np.asarray,
    ) -> None:  # fmt: skip
        """``side``: of which the program decides, where the learner has a network for each; the other rows are not
        compared. ``encode``: from the learner's actions to those that the environment takes."""
        self.learner, self.form, self.run, self.spec, self.side = learner, form, run, learner.spec, side
        self.encode = encode
        signs = seeds.generator("scale").choice([-1.0, 1.0], learner.theta.shape).astype(np.float32)
        self.moved = learner.theta * (1 + STEP * torch.from_numpy(signs))
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
        seen = seen if self.side is None else self.side.seen(seen)
        answer = self.form.read(self.run(self.form.feed(seen)))
        scores = self.scores(inputs, legal, own, start)
        scale = scale_of(scores, self.scores(inputs, legal, own, start, self.moved))
        played = decision.played.numpy()
        self.compare(played[rows], scores[rows], scale[rows], answer_of(answer, rows), seen.noise[rows])
        self.decisions += int(rows.sum())
        if decision.carry is None or answer.state is None:
            return decision
        other = torch.from_numpy(np.array(answer.state)).unflatten(1, (2, -1)).transpose(0, 1)
        memory = decision.carry.numpy()[:, rows]
        self.differ(memory, other.numpy()[:, rows], largest(memory))
        return decision._replace(carry=torch.cat([decision.carry, other], -1))

    def scores(
        self, inputs: tuple[Tensor, ...], legal: Tensor | None, carry: Tensor | None, start: Tensor | None,
        theta: Tensor | None = None,
    ) -> Array:  # fmt: skip
        """The learner's own logits or values [B, L] (masked), or with weights ``theta``; of a Box its raw outputs."""
        learner, theta = self.learner, self.learner.theta if theta is None else theta
        statistics = () if learner.moments is None else learner.moments.tensors(learner.device)
        with torch.inference_mode():
            if carry is None or start is None:
                raw = learner.forward(theta, statistics, inputs).raw
            else:
                ahead = tuple(x[None] for x in inputs)
                raw = learner.forward(theta, statistics, ahead, carry, start[None]).raw[0]
            scores: Array = (raw if legal is None else raw.masked_fill(~legal, MASKED)).numpy()
        return scores if self.side is None else self.side.scores(scores)

    def compare(self, played: Array, scores: Array, scale: Array, answer: Answer, noise: Array) -> None:
        """Add the differences between a decision of the learner and the program's."""
        action = self.form.spec.action
        if answer.scores is not None:
            self.differ(scores, answer.scores, scale)
        own = played[:, : components(self.form.spec)]
        taken = self.encode(own).reshape(own.shape)
        if isinstance(action, Box):
            self.differ(taken, answer.played, scale * units(action)[1].numpy())
            return
        drawn = scores + noise if self.learner.hyper.policy_head else scores
        for choices, wanted, got, part in zip(own.T, taken.T, answer.played.T, self.form.heads(drawn), strict=True):
            for row in np.flatnonzero(wanted != got):
                choice = int(choices[row])
                other = choice + int(got[row]) - int(wanted[row])
                near = TOLERANCE * scale[row, 0]
                self.wrong += not (0 <= other < part.shape[1] and abs(part[row, choice] - part[row, other]) <= near)

    def differ(self, expected: Array, actual: Array, scale: Array) -> None:
        """``scale``: of the numbers; those that are larger are their own."""
        gap = np.abs(expected - actual) / np.maximum(scale, np.abs(expected))
        self.difference = max(self.difference, float(gap.max(initial=0.0)))
        if not (np.isfinite(actual).all() and np.isfinite(gap).all()):
            self.difference = float("inf")

    @property
    def agrees(self) -> bool:
        return self.wrong == 0 and self.difference <= TOLERANCE

    def play_games(
        self, world: World, seed: int, episodes: int, max_steps: int, *, deterministic: bool
    ) -> list[Episode]:
        """Play evaluation episodes of ``seed``, several in each slot, so that the state begins anew in between."""
        world = world.evaluation_world()
        slots = in_whole_games(world, 1 if world.alone else SLOTS)
        arena = limited_arena(world, slots, seeds.Episodes(seed, "evaluate", evaluation=True), max_steps)
        try:
            numbers = episodes_per_slot(max(episodes, 2 * slots), slots)
            done = play_slots(arena, self, EvaluationNoise(arena, seed, deterministic), numbers)
        finally:
            arena.close()
        return [episode for slot in done for episode in slot]


def scale_of(scores: Array, moved: Array) -> Array:
    """The scale [B, 1] of scores [B, L], at least 1: rounding is a part of it, the same for all of a row.

    Scores are sums, and one that is small because its terms cancel is no more precise than they are. So the scale is
    the largest score, or how far one moves if each weight moves by a part of itself, per part: a runtime computes what
    is exact for weights that a few roundings have moved (backward error). ``moved``: scores of weights that have moved
    by `STEP`.
    """
    apart = np.abs(moved - scores).max(-1, keepdims=True, initial=0) / STEP
    return np.asarray(np.maximum(largest(scores), apart))


def largest(numbers: Array) -> Array:
    """The size [B, 1] of the largest number of each row [B, n] that is not masked, at least 1."""
    sizes = np.where(numbers == MASKED, 0, np.abs(numbers))
    return np.asarray(np.maximum(sizes.max(-1, keepdims=True, initial=0), 1))
