"""Payloads that harm careless readers, and mutated messages."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import marshal
import pickle
import random
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch


class Gadget:
    """An object that calls a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.made = (function, arguments)

    def __reduce__(self) -> Any:
        return self.made


def payloads(canary: Path) -> list[bytes]:
    """Return at least fifty payloads; executing one creates ``canary`` or a file beside it."""
    code = f"open({str(canary)!r}, 'w').close()"
    shell = f"touch {canary}"
    found = [*_pickles(code, shell), *_archives(canary), *_bombs(), *_texts(canary, code, shell)]
    found.append(marshal.dumps(compile(code, "x", "exec")))
    return found + [msgspec.msgpack.encode(one) for one in _calls(code)]


def _pickles(code: str, shell: str) -> list[bytes]:
    import os
    import subprocess

    gadgets = [Gadget(eval, code), Gadget(exec, code), Gadget(os.system, shell), Gadget(subprocess.call, shell.split())]
    raw = [pickle.dumps(gadget, protocol) for gadget in gadgets for protocol in range(6)]
    array, tensor = io.BytesIO(), io.BytesIO()
    np.save(array, np.array([gadgets[1]], dtype=object), allow_pickle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save({"weights": gadgets[1]}, tensor)
        legacy = io.BytesIO()
        torch.save({"weights": gadgets[1]}, legacy, _use_new_zipfile_serialization=False)
    return [*raw, array.getvalue(), tensor.getvalue(), legacy.getvalue(), zlib.compress(raw[0]), _npz(gadgets[1])]


def _npz(gadget: Gadget) -> bytes:
    whole = io.BytesIO()
    np.savez(whole, a=np.array([gadget], dtype=object))
    return whole.getvalue()


def _archives(canary: Path) -> list[bytes]:
    """Return archives whose entries have paths outside the target directory."""
    found = []
    for name in (f"../../../../../../../..{canary}", str(canary), "..\\..\\x", "x/../../../../../../.." + str(canary)):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(name, "x")
        found.append(packed.getvalue())
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.addfile(tarfile.TarInfo(name))
        found.append(packed.getvalue())
    return found


def _bombs() -> list[bytes]:
    nested = b"\x91" * 100_000
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(20_000_000))
    return [
        nested, b"\x81\x01" * 100_000, b"\xdd\xff\xff\xff\xff" * 1000, b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01", b"[" * 100_000, b'{"a":' * 50_000, gzip.compress(bytes(20_000_000)),
        lzma.compress(bytes(20_000_000)), packed.getvalue(), b"9" * 100_000,
    ]  # fmt: skip


def _texts(canary: Path, code: str, shell: str) -> list[bytes]:
    return [
        text.encode()
        for text in (
            code, f"__import__('os').system({shell!r})", f"!!python/object/apply:os.system [{shell!r}]",
            f"$(touch {canary})", f"; touch {canary};", f"file://{canary}", f"${{oc.env:HOME}}${{eval:{code}}}",
            json.dumps({"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}, [shell]]}),
            json.dumps({"_target_": "os.system", "_args_": [shell]}), "{0.__class__.__mro__[1].__subclasses__()}",
            '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>', "/proc/self/mem",
            "../" * 20 + "etc/passwd",
        )
    ]  # fmt: skip


def _calls(code: str) -> list[Any]:
    """Return values in the form of real messages, with content that must not be called, imported or trusted."""
    reference = msgspec.msgpack.Ext(1, msgspec.msgpack.encode((0, "|O", (1,), "")))
    return [
        [1, "__init__", [0], [], True], [1, "__reduce_ex__", [0], [], True], [1, "eval", [0], [code], True],
        [[False, [["builtins.SystemExit", "KeyboardInterrupt"], code, code]]], [[True, reference]],
        [1, [code.encode()]], [1, [pickle.dumps(Gadget(eval, code))]], [0, []], [(1 << 63), []],
        msgspec.msgpack.Ext(42, pickle.dumps(Gadget(eval, code))), [-1, [None]], {"__class__": "os.system"},
    ]  # fmt: skip


def mutated(draw: random.Random, frames: list[bytes]) -> list[bytes]:
    """Return a message with one to three changes to its bytes or frames."""
    changed = [bytearray(frame) for frame in frames]
    for _ in range(draw.randrange(1, 4)):
        frame = draw.choice(changed)
        at = draw.randrange(len(frame)) if frame else 0
        how = draw.randrange(6)
        if how <= 1 and frame:
            frame[at] ^= 1 << draw.randrange(8)
        elif how == 2:
            del frame[at:]
        elif how == 3:
            frame[at:at] = draw.randbytes(draw.randrange(1, 9))
        elif how == 4:  # a huge size in the place of a size
            frame[at : at + 5] = bytes([draw.choice(b"\xdd\xdf\xdb\xc6\xc9")]) + b"\xff" * 4
        elif len(changed) > 1 and draw.random() < 0.5:
            changed.pop(draw.randrange(len(changed)))
        else:
            changed.append(bytearray(draw.randbytes(9)))
    return [bytes(frame) for frame in changed]


def reshaped(draw: random.Random, frames: list[bytes]) -> list[bytes]:
    """Return a message of valid msgpack in another form: a part is removed, repeated or replaced."""
    at = draw.randrange(1, 3)
    return [*frames[:at], msgspec.msgpack.encode(_other(draw, msgspec.msgpack.decode(frames[at]))), *frames[at + 1 :]]


def _other(draw: random.Random, node: Any) -> Any:
    if isinstance(node, list) and node and draw.random() < 0.8:
        at = draw.randrange(len(node))
        how = draw.choice(["deeper", "deeper", "without", "twice"])
        new = {"deeper": [_other(draw, node[at])], "without": [], "twice": [node[at]] * 2}[how]
        return [*node[:at], *new, *node[at + 1 :]]
    return draw.choice([None, True, False, 0, 1, -1, 1 << 63, 0.5, "", "x", b"", b"x", [], [[]], [None], [0, []], {}])
