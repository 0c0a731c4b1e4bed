"""The field from above."""

from __future__ import annotations

import numpy as np

from evorl.mdp.core import Array

COLOURS = np.array([(64, 110, 222), (226, 86, 70), (250, 250, 246), (250, 204, 62)], np.uint8)
GRASS = (64, 122, 70)
ZOOM = 5


def draw(picture: Array) -> Array:
    """Uint8 [360, 480, 3] of a picture [4, 72, 96]: left team blue, right team red, ball white, own player yellow."""
    image = np.empty((*picture.shape[1:], 3), np.uint8)
    image[:] = GRASS
    for layer, colour in zip(picture[[0, 1, 3, 2]], COLOURS[[0, 1, 3, 2]], strict=True):
        image[layer > 0] = colour
    return image.repeat(ZOOM, 0).repeat(ZOOM, 1)
