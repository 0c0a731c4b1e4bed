"""onnxruntime-web under Node decides as the policy does, over whole episodes: `make web` installs it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from exporting import capped, content_of, learner_for, module_of
from test_exported_policies import CASES

from evorl.inference.check import Compared, Run
from evorl.inference.file import Format
from evorl.mdp.core import Array

WEB = Path(__file__).parent / "web"
pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules" / "onnxruntime-web").is_dir(),
    reason="needs Node and onnxruntime-web: make web",
)


@contextmanager
def web_program(path: Path) -> Iterator[Run]:
    """The file in onnxruntime-web, in a process of Node."""
    command = ["node", str(WEB / "run.mjs"), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def run(feed: dict[str, Array]) -> dict[str, Array]:
            sent = {
                name: {"type": str(x.dtype), "dims": x.shape, "data": x.ravel().tolist()} for name, x in feed.items()
            }
            print(json.dumps(sent), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline())
            return {name: np.array(x["data"], x["type"]).reshape(x["dims"]) for name, x in answer.items()}

        yield run
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.slow_cases(but=("onnx-masks-lstm",))
@pytest.mark.parametrize(
    ("form", "case"),
    [
        *(("onnx", case) for case in CASES),
        *(("unity", case) for case in ("ppo-lstm", "masks", "atari-nature")),
        ("godot", "ppo"),
    ],
    ids=str,
)
def test_a_browser_decides_as_the_policy(form: Format, case: str, tmp_path: Path) -> None:
    learner, world = learner_for(*CASES[case])
    module = module_of(learner, form)
    (tmp_path / "policy.onnx").write_bytes(content_of(module, form, world))
    with web_program(tmp_path / "policy.onnx") as run:
        compared = Compared(learner, module, run)
        compared.play_games(capped(world, 30), 3, 4, 30, deterministic=True)
    assert compared.agrees, (compared.difference, compared.wrong)
    assert compared.decisions >= 10


@pytest.mark.slow
def test_noise_is_an_input_in_a_browser_too(tmp_path: Path) -> None:
    learner, world = learner_for(*CASES["masks-lstm"])
    module = module_of(learner, "onnx", deterministic=False)
    (tmp_path / "policy.onnx").write_bytes(content_of(module, "onnx", world))
    with web_program(tmp_path / "policy.onnx") as run:
        compared = Compared(learner, module, run)
        compared.play_games(capped(world, 30), 3, 4, 30, deterministic=False)
    assert compared.agrees, (compared.difference, compared.wrong)
