"""Damaged files of other libraries, and tensors of any shape: one line, or a policy whose numbers are finite."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from test_foreign_policies import BOX, WORLD, actor_critic, mlp, named, saved, spec, write_cleanrl, write_sb3
from torch import nn

from evorl.jobs.foreign_policies import foreign_learner, learner_of
from evorl.mdp.core import Box
from evorl.util.errors import BadRequest

COMPRESSIONS = {"none": zipfile.ZIP_STORED, "deflate": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2,
                "lzma": zipfile.ZIP_LZMA}  # fmt: skip


def _damaged(content: bytes, random: np.random.Generator) -> bytes:
    """The content with some bytes that are others, or cut off."""
    data = np.frombuffer(content, np.uint8).copy()
    if random.random() < 0.3:
        return data[: random.integers(len(data))].tobytes()
    places = random.integers(len(data), size=random.integers(1, 6))
    data[places] = random.integers(256, size=len(places))
    return data.tobytes()


@pytest.mark.parametrize("form", ["cleanrl", *COMPRESSIONS])
def test_a_damaged_file_is_refused_or_loads(form: str) -> None:
    data, random = io.BytesIO(), np.random.Generator(np.random.PCG64(sum(form.encode())))
    if form == "cleanrl":
        torch.save(named(network=mlp([4, 8, 3], nn.ReLU)), data)
    else:
        with zipfile.ZipFile(data, "w", COMPRESSIONS[form]) as archive:
            archive.writestr("data", json.dumps({"policy_kwargs": {"net_arch": [8, 6]}}))
            archive.writestr("policy.pth", saved(actor_critic(3, "Tanh")[0]))
    refused = 0
    for _ in range(150):
        try:
            learner = learner_of("cleanrl" if form == "cleanrl" else "sb3", _damaged(data.getvalue(), random), WORLD)
            assert torch.isfinite(learner.theta).all()
        except BadRequest as error:
            assert error.args[0].isprintable()
            refused += 1
    assert refused > 20


LAYERS = ("mlp_extractor.policy_net.0", "action_net", "q_net.q_net.0", "actor.latent_pi.0", "actor.mu",
          "actor.log_std", "actor.mu.0", "network.0", "actor.0", "actor_mean.0", "fc1", "fc2", "fc_mu")  # fmt: skip


@pytest.mark.slow_cases(but=("0",))
@pytest.mark.parametrize("twenty", range(20))
def test_tensors_of_any_shape_are_refused_or_load(twenty: int, tmp_path: Path) -> None:
    random, sizes = np.random.Generator(np.random.PCG64(twenty)), (0, 1, 2, 3, 4, 4, 4, 8)
    for _ in range(20):
        state = {}
        for name in random.choice(LAYERS, random.integers(1, 4), replace=False).tolist():
            o, i = random.choice(sizes, 2).tolist()
            state |= {f"{name}.weight": torch.ones(o, i), f"{name}.bias": torch.ones(o)}
        if random.random() < 0.05:
            state["fc1.bias"] = torch.ones(1).expand(10**7, 10**7)
        for file in (write_sb3(tmp_path / "a", state), write_cleanrl(tmp_path / "b", state)):
            for world in (WORLD, spec(BOX), spec(Box((1.0, 1.0), (1.0, 2.0)))):
                try:
                    learner = foreign_learner(file, world, "policy")
                    assert torch.isfinite(learner.theta).all()
                except BadRequest as error:
                    assert str(error).isprintable()
