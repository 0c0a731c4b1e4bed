"""Checkpoints of a run as versions of one W&B artifact."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from evorl.record import checkpoint
from evorl.util import files


class Checkpoints:
    """Sends the checkpoints of a run directory, which the run may remove at any time.

    A checkpoint is first linked into ``wandb/checkpoints``, so its files stay until they are sent.
    """

    def __init__(self, run: Any, directory: Path) -> None:
        self._run, self._directory = run, directory
        self._staged = directory / "wandb" / "checkpoints"
        shutil.rmtree(self._staged, ignore_errors=True)
        self._sent: dict[int, bytes] = {}  # the manifest of each step

    def send(self) -> None:
        """Send the checkpoints that were not sent yet, or that were saved again since."""
        for step in checkpoint.steps(self._directory):
            manifest = self._manifest(step)
            if manifest not in (None, self._sent.get(step)):
                self._send(step, ["latest", f"step-{step}"])

    def tell_best(self, step: int) -> None:
        """Mark the best checkpoint, if the run has kept it."""
        if step in self._sent:
            self._send(step, ["best", f"step-{step}"])

    def close(self) -> None:
        """Remove the links, once everything is sent."""
        shutil.rmtree(self._staged, ignore_errors=True)

    def _send(self, step: int, aliases: list[str]) -> None:
        import wandb

        try:
            staged = self._stage(step)
        except FileNotFoundError:  # removed by the run
            return
        artifact = wandb.Artifact(f"checkpoints-{self._run.id}", "checkpoint", metadata={"step": step})
        for file in sorted(staged.iterdir()):
            artifact.add_file(str(file), file.name, policy="immutable", skip_cache=True)
        self._run.log_artifact(artifact, aliases=aliases)
        self._sent[step] = (staged / checkpoint.MANIFEST).read_bytes()

    def _stage(self, step: int) -> Path:
        """Link the files of a checkpoint. Raises FileNotFoundError if they were removed meanwhile."""
        opened = os.open(self._place(step), os.O_RDONLY | os.O_DIRECTORY)  # the same one, if another takes its name
        try:
            source = Path(f"/proc/self/fd/{opened}")
            content = (source / checkpoint.MANIFEST).read_bytes()
            staged = self._staged / f"{step}-{len(self._sent)}-{os.urandom(4).hex()}"
            staged.mkdir(parents=True)
            for name in (checkpoint.MANIFEST, *json.loads(content)["files"]):
                files.link(source / name, staged / name)
        finally:
            os.close(opened)
        return staged

    def _manifest(self, step: int) -> bytes | None:
        try:
            return (self._place(step) / checkpoint.MANIFEST).read_bytes()
        except FileNotFoundError:
            return None

    def _place(self, step: int) -> Path:
        return self._directory / "checkpoints" / str(step)
