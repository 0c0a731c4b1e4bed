"""Arrays of which each row is compressed by itself, by LZ4."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.mdp.core import Spec
from evorl.util import command
from evorl.util.errors import BadRequest

Array = NDArray[Any]


def check_compressible(spec: Spec) -> None:
    """Raise `BadRequest` for a world without observations in bytes, and without the package lz4."""
    if not any(entry.dtype == "uint8" for entry in spec.inputs):
        raise BadRequest("only observations in bytes (uint8) are compressed, and this world has none", "rl.compress")
    if find_spec("lz4") is None:
        raise BadRequest(f"needs more than is installed: {command.install('lz4')}", "rl.compress")


class Packed:
    """An array [n, ...] that is written and read in rows, in memory that grows with what it holds.

    It has what a replay needs of an array.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        from lz4 import block

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
        rows = np.empty((at.size, self._row_bytes), np.uint8)
        for i, place in enumerate(at.reshape(-1).tolist()):
            rows[i] = np.frombuffer(self._decompress(self._rows[place], self._row_bytes), np.uint8)
        return rows.view(self.dtype).reshape(*at.shape, *self.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the compressed rows and what Python needs to hold them. Rows never written count, too."""
        return sum(map(sys.getsizeof, self._rows)) + sys.getsizeof(self._rows)
