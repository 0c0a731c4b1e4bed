"""The published player of slime volleyball: a recurrent network of 7 units.

Its inputs are the first 8 numbers that a side observes and its 7 outputs of the step before. The first three outputs
are forward, back and jump, each pressed above 0.75. The weights are those of Neural Slime Volleyball (David Ha, 2015),
found by neuroevolution, as published with SlimeVolleyGym (Apache License 2.0).
"""

from __future__ import annotations

import numpy as np

from evorl.mdp.core import Array

UNITS, PRESSED = 7, 0.75
WEIGHTS = np.array([
    [7.5719, 4.4285, 2.2716, -0.3598, -7.8189, -2.5422, -3.2034, 0.3935,
     1.2202, -0.49, -0.0316, 0.5221, 0.7026, 0.4179, -2.1689],
    [1.646, -13.3639, 1.5151, 1.1175, -5.3561, 5.0442, 0.8451, 0.3987,
     -2.9501, -3.7811, -5.8994, 6.4167, 2.5014, 7.338, -2.9887],
    [2.4586, 13.4191, 2.7395, -3.9708, 1.6548, -2.7554, -1.5345, -6.4708,
     9.2426, -0.7392, 0.4452, 1.8828, -2.6277, -10.851, -3.2353],
    [-4.4653, -3.1153, -1.3707, 7.318, 16.0902, 1.4686, 7.0391, 1.7765,
     -1.155, 2.6697, -8.8877, 1.1958, -3.2839, -5.4425, 1.6809],
    [7.6812, -2.4732, 1.738, 0.3781, 0.8718, 2.5886, 1.6911, 1.2953,
     -9.0052, -4.6038, -6.7447, -2.5528, 0.4391, -4.9278, -3.6695],
    [-4.8673, -1.6035, 1.5011, -5.6124, 4.9747, 1.8998, 3.0359, 6.2983,
     -4.8568, -2.1888, -4.1143, -3.9874, -0.0459, 4.7134, 2.8952],
    [-9.3627, -4.685, 0.3601, -1.3699, 9.7294, 11.5596, 0.1918, 3.0783,
     0.0329, -0.1362, -0.1188, -0.7579, 0.3278, -0.977, -0.9377],
])  # fmt: skip
BIAS = np.array([2.2935, -2.0353, -1.7786, 5.4567, -3.6368, 3.4996, -0.0685])
# by jump, and by forward (1), back (-1) or neither (0): the number of the action
ACTIONS = np.array([[0, 1, 5], [3, 2, 4]])


def step(seen: Array, outputs: Array) -> tuple[Array, Array]:
    """The actions [n] and the next outputs [n, 7] of players that see ``seen`` [n, 12] after ``outputs`` [n, 7].

    The outputs before a game are 0. Each row is computed by itself, so it has the same bits among any others.
    """
    inputs = np.concatenate([seen[:, :8], outputs], 1)
    after = np.tanh((WEIGHTS * inputs[:, None]).sum(2) + BIAS)
    forward, back, jump = (after[:, :3] > PRESSED).T
    return ACTIONS[jump.astype(int), forward.astype(int) - back.astype(int)], after
