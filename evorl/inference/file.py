"""Exported policies as files, which say of themselves what they are, and reading them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from typing import Any, Literal
from zipfile import ZipFile

import torch

from evorl.inference import cleanrl, sb3
from evorl.inference.check import Run, onnx_program, torch_program
from evorl.inference.linear import linear_policy
from evorl.inference.module import PolicyModule, traced
from evorl.jobs.foreign_policies import LIBRARIES, learner_of
from evorl.mdp.core import World
from evorl.mdp.result_features import feature_names
from evorl.util.errors import BadRequest
from evorl.util.text import as_json

Format = Literal["onnx", "unity", "godot", "torch", "sb3", "cleanrl"]
KEY = "evorl"
"""Where a file keeps its description: a metadata property of ONNX, an extra file of torch.export, a part of SB3's zip.
CleanRL's files hold tensors alone, and no description."""
VERSION = 1
"""Of the description. Readers take older ones, too: fields are added, and none changes its meaning."""


def policy_file(module: PolicyModule, form: Format) -> PolicyFile | LibraryFile:
    """A policy in one of the formats. Raises `BadRequest` for a network that it cannot have."""
    return LibraryFile(module, form) if form in LIBRARIES else PolicyFile(module, form)


class LibraryFile:
    """A policy as a library of reinforcement learning saves its own."""

    def __init__(self, module: PolicyModule, form: Format) -> None:
        """Raises `BadRequest` for a network that the library does not have."""
        self.policy, self.form = linear_policy(module.learner), form
        if form == "cleanrl":
            cleanrl.check(self.policy)

    def content(self, description: Mapping[str, Any]) -> bytes:
        """The bytes of the file."""
        if self.form == "cleanrl":
            return cleanrl.content(self.policy)
        return sb3.content(self.policy, as_json(description), description.get("step", 0))

    def opset(self) -> None:
        return None


class PolicyFile:
    """A policy as a graph of operations, with its weights and its description inside."""

    def __init__(self, module: PolicyModule, form: Format) -> None:
        """Raises `BadRequest` for a network that ONNX files cannot have yet."""
        self.module, self.form = module, form
        with _quiet():
            self.program = traced(module)
            if form != "torch":
                from evorl.inference.graph import onnx_model
                from evorl.inference.operations import Untranslated

                try:
                    self.model = onnx_model(self.program, module.inputs, module.outputs)
                except Untranslated as error:
                    raise BadRequest(f"{error}; format=torch writes this network", "format") from None

    def content(self, description: Mapping[str, Any]) -> bytes:
        """The bytes of the file."""
        text = as_json(description)
        if self.form == "torch":
            saved = BytesIO()
            with _quiet():
                torch.export.save(self.program, saved, extra_files={KEY: text})
            return saved.getvalue()
        from onnx import helper

        helper.set_model_props(self.model, {KEY: text})
        return bytes(self.model.SerializeToString(deterministic=True))

    def opset(self) -> int | None:
        return None if self.form == "torch" else int(self.model.opset_import[0].version)


def program(content: bytes, module: PolicyModule, form: Format) -> Run:
    """A file's content, ready to be run with the ports of ``module``."""
    if form in LIBRARIES:  # which evorl reads back
        return torch_program(PolicyModule(learner_of(form, content, module.spec)), module)
    if form != "torch":
        return onnx_program(content)
    with _quiet():
        loaded = torch.export.load(BytesIO(content)).module()
    return torch_program(loaded, module)


def read_description(content: bytes) -> dict[str, Any]:
    """What a file says of itself. Raises ValueError for a file of another origin."""
    if content[:2] == b"PK" and KEY in (parts := ZipFile(BytesIO(content))).namelist():
        text = parts.read(KEY).decode()
    elif content[:2] == b"PK":
        extra = {KEY: ""}
        with _quiet():
            torch.export.load(BytesIO(content), extra_files=extra)
        text = extra[KEY]
    else:
        import onnx

        text = {entry.key: entry.value for entry in onnx.load_from_string(content).metadata_props}.get(KEY, "")
    if not text:
        raise ValueError("no policy that evorl.export wrote")
    about: dict[str, Any] = json.loads(text)
    return about


def description(module: PolicyModule, form: Format, world: World, about: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of itself, as plain data: ``about`` its origin, and what its numbers mean."""
    spec = module.spec
    return {
        "version": VERSION, "format": form, **about,
        "deterministic": module.deterministic,
        "inputs": [port._asdict() for port in module.inputs],
        "outputs": [port._asdict() for port in module.outputs],
        "observations": [
            {**asdict(seen), "features": list(feature_names(world).get(seen.name, ()))} for seen in spec.inputs
        ],
        "action": {
            "kind": type(spec.action).__name__, **asdict(spec.action),
            **({"start": [*module.start]} if module.start else {}),
            "names": [list(names) for names in world.action_names],
        },
        "noise": module.noise,
    }  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch warns itself of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
