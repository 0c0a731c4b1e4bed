"""The published curves: elite replay and uniform replay on two games, digitised from the platform's figures.

They are the only two figures of https://github.com/parralplex/elite_buffer_vtrace (its README), read off by eye and
ruler at these places, so the last digit is uncertain. The axis of the figures says "Frames"; by the platform's code it
counts decisions, four frames each. How many runs were averaged is not told, nor which side of 8:2 is the replay; the
bands are one standard deviation.
"""

from __future__ import annotations

from benchmarks.elite_replay.arms import ELITE, UNIFORM

STEPS = {
    "breakout": (2e6, 3e6, 4e6, 5e6, 6e6, 8e6, 10e6, 12e6),
    "seaquest": (1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 8e6, 10e6, 12e6),
}
SCORES = {
    "breakout": {
        UNIFORM: (40, 84, 137, 242, 335, 399, 434, 460),
        ELITE[1]: (41, 84, 158, 237, 303, 375, 408, 426),
        ELITE[3]: (48, 110, 195, 292, 350, 401, 423, 456),
    },
    "seaquest": {
        UNIFORM: (380, 408, 444, 444, 488, 564, 684, 839, 943),
        ELITE[1]: (424, 447, 520, 634, 796, 905, 1062, 1185, 1260),
        ELITE[3]: (504, 534, 591, 701, 858, 983, 1186, 1324, 1386),
    },
}
BANDS = {
    "breakout": {UNIFORM: (449, 472), ELITE[1]: (404, 448), ELITE[3]: (446, 466)},
    "seaquest": {UNIFORM: (890, 995), ELITE[1]: (961, 1559), ELITE[3]: (1354, 1418)},
}
"""At 12M decisions."""
