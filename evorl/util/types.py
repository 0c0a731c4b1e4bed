"""Types that packages share: states, and numbers with bounds that `evorl.util.typed` checks through msgspec."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Shrinking = Annotated[float, Meta(gt=0, le=1)]  # a factor
Averaging = Annotated[float, Meta(ge=0, lt=1)]  # the share of the past in a moving average
Count = Annotated[int, Meta(ge=1)]
Threads = Annotated[int, Meta(ge=1, le=1024)]  # more than a system allows would end the process
Natural = Annotated[int, Meta(ge=0)]

StateDict = dict[str, Any]
"""Nested dictionaries (string keys) of NumPy arrays, torch tensors, plain JSON values and lists of these."""
