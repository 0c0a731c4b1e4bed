"""Checkpoints of a run as versions of one W&B artifact."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evorl.record import checkpoint
from evorl.util import run_directory

_STAGED = "wandb/checkpoints"


class Checkpoints:
    """Sends the checkpoints of a run directory, which the run may remove at any time.

    A checkpoint is first linked into ``wandb/checkpoints``, so its files stay until they are sent; offline, until
    somebody sends them.
    """

    def __init__(self, run: Any, directory: Path) -> None:
        self._run, self._directory = run, directory
        self.close()
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
        if run_directory.is_folder(self._directory, _STAGED):
            shutil.rmtree(self._directory / _STAGED, ignore_errors=True)

    def _send(self, step: int, aliases: list[str]) -> None:
        import wandb

        try:
            staged = self._stage(step)
        except FileNotFoundError:  # removed by the run
            return
        artifact = wandb.Artifact(f"checkpoints-{self._run.id}", "checkpoint", metadata={"step": step})
        for name in sorted(staged.names):
            artifact.add_file(str(self._directory / staged.place / name), name, policy="immutable", skip_cache=True)
        logged = self._run.log_artifact(artifact, aliases=aliases)
        self._sent[step] = staged.manifest
        if not self._run.offline:
            threading.Thread(target=self._remove_once_sent, args=(logged, staged.place), daemon=True).start()

    def _remove_once_sent(self, logged: Any, place: str) -> None:
        """Wait, for as long as it takes: to give up waiting would cancel the upload."""
        try:
            logged.wait()
        except Exception as error:  # of many kinds; `close` removes the links
            print(f"{place} stays until the end ({type(error).__name__}: {error})", file=sys.stderr)
        else:
            shutil.rmtree(self._directory / place, ignore_errors=True)

    def _stage(self, step: int) -> _Staged:
        """Link the files of a checkpoint. Raises FileNotFoundError if they were removed meanwhile."""
        manifest = self._manifest(step)
        if manifest is None:
            raise FileNotFoundError(f"checkpoint {step}")
        # the manifest last: if it is still this one, the files before it are of the same checkpoint
        names = [*sorted(json.loads(manifest)["files"]), checkpoint.MANIFEST]
        place = f"{_STAGED}/{step}-{len(self._sent)}-{os.urandom(4).hex()}"
        for folder in (_STAGED, place):
            run_directory.make_folder(self._directory, folder)
        for name in names:
            if not run_directory.is_name(name):
                raise ValueError(f"checkpoint {step} names {name!r:.80} as a file")
            run_directory.link(self._directory, f"checkpoints/{step}/{name}", f"{place}/{name}")
        if run_directory.read(self._directory, f"{place}/{checkpoint.MANIFEST}", run_directory.DOCUMENT) != manifest:
            raise FileNotFoundError(f"checkpoint {step} was saved again")
        return _Staged(place, names, manifest)

    def _manifest(self, step: int) -> bytes | None:
        try:
            name = f"checkpoints/{step}/{checkpoint.MANIFEST}"
            return bytes(run_directory.read(self._directory, name, run_directory.DOCUMENT))
        except FileNotFoundError:
            return None


class _Staged(NamedTuple):
    """The files of a checkpoint under names of their own."""

    place: str
    names: Sequence[str]
    manifest: bytes
