"""The threads of PyTorch, of which a process has one number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(number: int | None = None) -> Iterator[None]:
    """Compute with so many threads (None: as many as before), and leave the process the number that it had."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
