"""Arrays of which each row is compressed by itself, by LZ4."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.util import command
from evorl.util.errors import BadRequest

Array = NDArray[Any]


class Packed:
    """An array [n, ...] that is written and read in rows, in memory that grows with what it holds.

    It has what a replay needs of an array. Raises `BadRequest` without the package lz4.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        try:
            from lz4 import block
        except ImportError:
            raise BadRequest(f"needs more than is installed: {command.install('lz4')}", "rl.compress") from None
        self.shape, self.dtype = shape, dtype
        self._compress, self._decompress = block.compress, block.decompress
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        self._rows = [self._compress(bytes(self._row_bytes), store_size=False)] * shape[0]

    def __setitem__(self, at: NDArray[np.int64], rows: Array) -> None:
        """Store rows [N, ...] in places [N]; of a place named twice the last stays."""
        for place, row in zip(at.tolist(), rows, strict=True):
            self._rows[place] = self._compress(np.ascontiguousarray(row), store_size=False)

    def take(self, at: NDArray[np.int64], axis: int = 0) -> Array:
        """Return the rows in these places, of any shape, as an array [*at.shape, ...]."""
        assert axis == 0
        found = np.empty((at.size, self._row_bytes), np.uint8)
        for i, place in enumerate(at.reshape(-1).tolist()):
            found[i] = np.frombuffer(self._decompress(self._rows[place], self._row_bytes), np.uint8)
        return found.view(self.dtype).reshape(*at.shape, *self.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the compressed rows. Those never written count, too."""
        return sum(map(len, self._rows))
