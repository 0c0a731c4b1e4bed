"""Atari's Pong from pixels by V-trace, half of each minibatch replayed: steps and minutes until the score is above 0.

``evorl.run +experiment=pong_pixels_vtrace`` (PongNoFrameskip-v4, pictures of 60 x 60, one worker process that plays
while the driver learns). A run ends after two hours, or once an evaluation has a mean score of 10 or more. The score in
training is the mean of the last 100 full games of the policy that learns, which draws its actions. An evaluation is 5
games with drawn and 5 with the most probable actions. The clock counts all of the run, evaluations included.

    python benchmarks/pong/pixels_vtrace.py [--runs DIR] [--out DIR] [--draw]
"""

from __future__ import annotations

from pixels import measure

from evorl.reproduction.parts import Sweep

SWEEP = Sweep(
    "pong_pixels_vtrace", ("+experiment=pong_pixels_vtrace", "seed=1", "budget.seconds=7200", "budget.fitness=10")
)

if __name__ == "__main__":
    measure(SWEEP, __doc__)
