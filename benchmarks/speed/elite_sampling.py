"""Elite sampling: what it costs, as a share of the gradient step that it feeds.

64 rollouts of 20 decisions are chosen of 6 times as many by features of 512 numbers (CartPole's shapes, two layers of
512, a part of 1,000 rollouts), for a minibatch of 128 that is half elite, and for one of 64 that is all elite. Each
gradient step follows 64 new rollouts. With lag=0 all 384 candidates are encoded when they are drawn. With lag=N the
distance of a candidate is used for N gradient steps more, and a second thread encodes those of the next gradient step
beside the present one. The learners take turns. Each sample is the wall time of some gradient steps with one thread of
torch: of the sampling (drawing, encoding, comparing, and waiting for the second thread), of that thread, and of the
gradient step.

    python benchmarks/speed/elite_sampling.py [--samples 5] [--steps 16] [--out DIR]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from common import alternate, arguments, machine, median, page, save

from evorl.mdp.core import Discrete, Input, Spec
from evorl.nets.policy import Net
from evorl.replay.samplers.nearest import NearestRollouts
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.rl.batch import RolloutBatch
from evorl.rl.vtrace import VTrace

CHOSEN = 64
SPEC = Spec(inputs=(Input("state", (4,)),), action=Discrete(2))
LAGS = (0, 1, 4, 8)
AIM = 0.25


class Contestant:
    """A learner whose replay is full, and what its gradient steps take."""

    def __init__(self, batch: int, lag: int) -> None:
        share = CHOSEN / batch
        sampling, options = {"queue": 1 - share, "elite": share}, RolloutSamplers(elite=NearestRollouts(lag=lag))
        hyper = VTrace(slots=CHOSEN, batch=batch, net=Net(hidden=(512, 512)), sampling=sampling, replay=options)
        self.learner: Any = hyper.learner(SPEC, 0, torch.device("cpu"))
        self.batch = _played(hyper.storage(SPEC, CHOSEN))
        self.times = dict.fromkeys(("sample", "learn", "prefetch"), 0.0)
        self.encoded: list[float] = []
        part = self.learner.replay.parts["elite"]
        part.sample = self._timed("sample", part.sample)
        self.learner._prefetched = self._timed("sample", self.learner._prefetched)
        self.learner._learn = self._timed("learn", self.learner._learn)
        for _ in range(hyper.replay.elite.capacity // CHOSEN + 1):
            self.learner.update(self.batch, 0, 0)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            answer = function(*arguments)
            self.times[name] += time.perf_counter() - began
            return answer

        return timed

    def __call__(self, steps: int) -> dict[str, float]:
        """Seconds of a gradient step: of its sampling, of prefetching and of itself; and the share of candidates that
        were encoded when they were drawn."""
        self.times, encoded = dict.fromkeys(self.times, 0.0), 0.0
        for _ in range(steps):
            learned = self.learner.update(self.batch, 0, 0)
            assert learned.steps == 1
            encoded += learned.metrics["replay/encoded_elite"]
            self.times["prefetch"] += learned.metrics.get("speed/prefetch_seconds", 0.0)
        return {**{name: x / steps for name, x in self.times.items()}, "encoded": encoded / steps}


def _played(batch: RolloutBatch) -> RolloutBatch:
    """Rollouts of a policy that is near the learner's, drawn at random."""
    generator = torch.Generator().manual_seed(0)
    assert batch.features is not None
    for x in (*batch.inputs, batch.features, batch.reward):
        x.copy_(torch.randn(x.shape, generator=generator))
    batch.log_prob.fill_(-0.7)
    return batch


def main() -> None:
    args = arguments(__doc__, samples=5, steps=16)
    torch.set_num_threads(1)
    contestants = {(batch, lag): Contestant(batch, lag) for batch in (2 * CHOSEN, CHOSEN) for lag in LAGS}
    answers = alternate(
        {name: lambda _, contestant=contestant: contestant(args.steps) for name, contestant in contestants.items()},
        range(args.samples),
    )
    rows, data = [], []
    for (batch, lag), samples in answers.items():
        share = median([sample["sample"] / sample["learn"] for sample in samples])
        data.append({"batch": batch, "lag": lag, "share": share, "samples": samples})
        times = (
            f"{1000 * median([sample[name] for sample in samples]):.1f}" for name in ("sample", "prefetch", "learn")
        )
        encoded = median([sample["encoded"] for sample in samples])
        rows.append([f"{CHOSEN} of {batch}", str(lag), f"{encoded:.2f}", *times, f"{share:.2f}"])
    header = [
        "elite rollouts",
        "lag",
        "encoded when drawn",
        "sampling, ms",
        "second thread, ms",
        "gradient step, ms",
        f"share (aim: {AIM})",
    ]
    save(args.out, machine(), page("Elite sampling", __doc__, header, rows), {"rows": data})


if __name__ == "__main__":
    main()
