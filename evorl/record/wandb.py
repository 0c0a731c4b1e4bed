"""Weights & Biases: a process of its own that reads ``metrics.jsonl``.

Within the run's process the library could hold it up: looking for a network that is not there keeps a process
from ending for a minute and a half. Here the run only starts a child and, at its end, closes a pipe:

* stdin of the child: one line of settings; then nothing until "done", or the end of the file if the run died;
* stdout: a "+" once the library is ready;
* stderr: ``wandb/evorl.log``.

A row is one W&B history entry, in order, with the environment step as its x axis. A resumed online run goes on
under the id it had and skips the rows that the server already has: an exact resume makes the same rows again. An
offline run is written whole at each start, so the newest offline directory has everything.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evorl.record.follow import follow
from evorl.util import files
from evorl.util.poll import readable

if TYPE_CHECKING:
    from evorl.record.core import Record

_PATIENCE_S = 2.0
_PATIENCE_ONLINE_S = 15.0  # only for a child that has reached its server
_LAST_S = 60  # after the end of the run the child ends itself, whatever the library does
_INIT_TIMEOUT_S = 30.0
_PERIOD_S = 1.0
_OFFLINE_INSTEAD = 3  # exit code
_log = logging.getLogger("evorl")


# ------------------------------------------------------------------ in the run's process


class WandB:
    """The run's side: starts the child, warns when it fails, waits for it a little at the end."""

    def __init__(self, directory: Path, record: Record, config: Mapping[str, Any]) -> None:
        home = directory / "wandb"
        home.mkdir(exist_ok=True)
        self._home, self._online, self._warned = home, record.wandb == "online", False
        settings = {
            "mode": record.wandb,
            "project": record.project,
            "group": record.group,
            "name": record.name or directory.name,
            "config": dict(config),
            "last_s": _LAST_S,
        }
        with (home / "evorl.log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "evorl.record.wandb", str(directory.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is the run's business
            )
        self._send((json.dumps(settings, default=str) + "\n").encode())

    def check(self) -> None:
        code = self._child.poll()
        if code and not self._warned:
            self._warned = True
            _log.warning("W&B %s; metrics.jsonl has every row", self._reason(code))

    def close(self, ok: bool) -> None:
        patience = _PATIENCE_ONLINE_S if self._online and self._ready() else _PATIENCE_S
        if ok:
            self._send(b"done\n")
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._child.wait(patience)
            self.check()
        except subprocess.TimeoutExpired:
            self._child.returncode = 0  # it is left to itself: nobody waits for it any more
            _log.warning("W&B is not done yet: it has %d s more, in the background, to finish %s", _LAST_S, self._home)

    def _send(self, line: bytes) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # `check` says why
            files.append(self._child.stdin.fileno(), line)

    def _ready(self) -> bool:
        assert self._child.stdout is not None
        return bool(readable([self._child.stdout], 0)) and self._child.poll() is None

    def _reason(self, code: int) -> str:
        if code == _OFFLINE_INSTEAD:
            return f"could not reach its server; `wandb sync {self._home}/offline-run-*` uploads the run"
        lines = (self._home / "evorl.log").read_text(errors="replace").strip().splitlines()
        return f"stopped with code {code} ({lines[-1].strip() if lines else 'it said nothing'})"


# ------------------------------------------------------------------ in the child


def main(directory: Path) -> int:
    """Read the settings, then send every row until the run is over; return the exit code."""
    ready = os.dup(1)
    os.dup2(2, 1)  # whatever the library prints goes to the log
    settings = json.loads(sys.stdin.readline())
    parent = _Parent(settings.pop("last_s"))
    run, code = _init(directory, settings)
    with suppress(BrokenPipeError):  # the run may be over already
        os.write(ready, b"+")
    for index, row in enumerate(follow(directory / "metrics.jsonl", 0, parent.wait)):
        if index >= run.step:
            run.log({"step": row.step, "time": row.time, **row.metrics})
    run.finish(exit_code=0 if parent.ok else 1)
    return code


def _init(directory: Path, settings: dict[str, Any]) -> tuple[Any, int]:
    """The W&B run, and the exit code that says whether it is what was asked for."""
    import wandb

    mode = settings.pop("mode")
    arguments = {
        **settings,
        "dir": str(directory),
        "resume": "allow",
        "id": _identity(directory),
        "reinit": "create_new",
    }
    quiet = wandb.Settings(silent=True, console="off", init_timeout=_INIT_TIMEOUT_S, disable_git=True)
    try:
        run, code = wandb.init(mode=mode, settings=quiet, **arguments), 0
    except Exception as error:
        if mode == "offline":
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        run, code = wandb.init(mode="offline", settings=quiet, **arguments), _OFFLINE_INSTEAD
    run.define_metric("*", step_metric="step")
    return run, code


def _identity(directory: Path) -> str:
    """The id of this run at W&B: random, and the same after a resume or a move of the directory."""
    file = directory / "wandb" / "evorl.id"
    if not file.exists():
        file.write_text(os.urandom(6).hex())
    return file.read_text()


class _Parent:
    """The run, as far as the child can tell from its stdin; a thread listens, for the library may not come back."""

    def __init__(self, last_s: int) -> None:
        self.ok = False
        self._over = threading.Event()
        threading.Thread(target=self._listen, args=(last_s,), daemon=True).start()

    def wait(self) -> bool:
        return self._over.wait(_PERIOD_S)

    def _listen(self, last_s: int) -> None:
        self.ok = sys.stdin.readline() == "done\n"
        self._over.set()
        signal.alarm(last_s)  # ends the process in the midst of anything


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
