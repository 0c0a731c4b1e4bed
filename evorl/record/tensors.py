"""Encoder and decoder of the safetensors format: named arrays in one file, loaded without executing code.

evorl does not use the safetensors library for writing: here arrays stream to the disk without a copy, and a full
disk raises OSError. Every reader of the format can open the files. Layout of a file: the header's length (8 bytes,
little endian), the header (JSON: name -> dtype, shape, offsets), the arrays' bytes without gaps.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]

_BY_NAME = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4",
    "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "BF16": "<u2",
}  # fmt: skip
_BY_DTYPE = {dtype: name for name, dtype in _BY_NAME.items() if name != "BF16"}


def is_tensor(value: object) -> bool:
    """Return whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def encode(arrays: Mapping[str, Array | torch.Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the file in chunks. Raises TypeError for a dtype that the format lacks."""
    flat = {name: _flat(name, value) for name, value in arrays.items()}
    # Arrays with the widest items come first, so that every array is aligned to its item size.
    order = sorted(flat, key=lambda name: (-flat[name][1].itemsize, name))
    header, end = {}, 0
    for name in order:
        dtype, array = flat[name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield flat[name][1].reshape(-1).view(np.uint8).data


def decode(content: bytearray) -> dict[str, Array]:
    """Return the arrays of a file as writable views of its bytes; a BF16 array is returned as uint16.

    Raises ValueError if the header does not match the bytes that follow it.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {name: _view(content, start, name, entry) for name, entry in header.items()}


def to_torch(array: Array, dtype: str) -> torch.Tensor:
    """Return a tensor that shares the memory of an array; ``dtype`` is torch's name ("bfloat16", ...).

    Raises ValueError for an array of another dtype.
    """
    import torch

    tensor = torch.from_numpy(array)
    tensor = tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
    if str(tensor.dtype) != f"torch.{dtype}":
        raise ValueError(f"an array of {array.dtype} is no tensor of {dtype!s:.40}")
    return tensor


def _flat(name: str, value: Any) -> tuple[str, Array]:
    if name == "__metadata__":
        raise ValueError("the name __metadata__ is reserved by the safetensors format")
    bfloat = False
    if is_tensor(value):
        import torch

        bfloat = value.dtype == torch.bfloat16
        value = value.detach().cpu().contiguous()
        value = (value.view(torch.uint16) if bfloat else value).numpy()
    array = np.asarray(value, value.dtype.newbyteorder("<"), order="C")
    if array.dtype.str not in _BY_DTYPE:
        raise TypeError(f"{name}: arrays of {array.dtype} cannot be saved")
    return "BF16" if bfloat else _BY_DTYPE[array.dtype.str], array


def _view(content: bytearray, start: int, name: str, entry: Mapping[str, Any]) -> Array:
    dtype, shape = np.dtype(_BY_NAME[entry["dtype"]]), entry["shape"]
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= len(content) - start or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name}: shape {shape} does not fit bytes {begin} to {end}")
    return np.frombuffer(content, dtype, math.prod(shape), start + begin).reshape(shape)
