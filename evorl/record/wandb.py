"""Weights & Biases sink: a child process that reads ``metrics.jsonl``.

The library runs in a process of its own because it can block: without a network it keeps a process from exiting for
90 seconds. The run only starts the child and closes a pipe at the end:

* stdin of the child: one line of settings (JSON), then "done" at the end of the run; end of file if the run died;
* stdout: a "+" once the library is ready;
* stderr: ``wandb/evorl.log``.

Each row becomes one W&B history entry, in order, with the environment step as its x axis. A resumed online run keeps
its id and skips the rows that the server has already, since an exact resume produces the same rows again. An offline
run is written completely at each start, so the newest offline directory contains all rows.
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
from typing import Any

from evorl.record.metrics_tail import follow_rows
from evorl.util import files
from evorl.util.poll import readable

_CLOSE_TIMEOUT_S = 2.0
_CLOSE_TIMEOUT_ONLINE_S = 15.0  # if the child has reached its server
_CHILD_TIMEOUT_S = 60  # after the end of the run the child exits by SIGALRM, even if the library blocks
_INIT_TIMEOUT_S = 30.0
_PERIOD_S = 1.0
_OFFLINE_INSTEAD = 3  # exit code
_log = logging.getLogger("evorl")


# ------------------------------------------------------------------ in the run's process


class WandB:
    """The sink in the run's process: starts the child, logs a warning if it fails, waits for it at the end.

    ``settings``: ``mode`` (offline or online), ``project``, ``group`` and ``name`` as in config group ``record``.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        home = directory / "wandb"
        home.mkdir(exist_ok=True)
        self._home, self._online, self._warned = home, settings["mode"] == "online", False
        first_line = {
            **settings,
            "name": settings["name"] or directory.name,
            "config": dict(config),
            "child_timeout_s": _CHILD_TIMEOUT_S,
        }
        with (home / "evorl.log").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "evorl.record.wandb", str(directory.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # the run handles Ctrl-C, the child ignores it
            )
        self._send((json.dumps(first_line, default=str) + "\n").encode())

    def check(self) -> None:
        """Log one warning if the child has exited with an error."""
        code = self._child.poll()
        if code and not self._warned:
            self._warned = True
            _log.warning("W&B %s; metrics.jsonl has every row", self._reason(code))

    def close(self, ok: bool) -> None:
        """Close the pipes and wait a few seconds for the child to finish."""
        timeout = _CLOSE_TIMEOUT_ONLINE_S if self._online and self._ready() else _CLOSE_TIMEOUT_S
        if ok:
            self._send(b"done\n")
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._child.wait(timeout)
            self.check()
        except subprocess.TimeoutExpired:
            self._child.returncode = 0  # suppresses the ResourceWarning: the child is not waited for any more
            _log.warning(
                "W&B is not done yet: it has %d s more, in the background, to finish %s", _CHILD_TIMEOUT_S, self._home
            )

    def _send(self, line: bytes) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # `check` logs the reason
            files.write_all(self._child.stdin.fileno(), line)

    def _ready(self) -> bool:
        assert self._child.stdout is not None
        return bool(readable([self._child.stdout], 0)) and self._child.poll() is None

    def _reason(self, code: int) -> str:
        if code == _OFFLINE_INSTEAD:
            return f"could not reach its server; `wandb sync {self._home}/offline-run-*` uploads the run"
        lines = (self._home / "evorl.log").read_text(errors="replace").strip().splitlines()
        return f"stopped with code {code} ({lines[-1].strip() if lines else 'no output'})"


# ------------------------------------------------------------------ in the child


def main(directory: Path) -> int:
    """Read the settings, send every row until the run is over, and return the exit code."""
    ready = os.dup(1)
    os.dup2(2, 1)  # redirect prints of the library to the log
    settings = json.loads(sys.stdin.readline())
    parent = _Parent(settings.pop("child_timeout_s"))
    run, code = _init(directory, settings)
    with suppress(BrokenPipeError):  # the run may be over already
        os.write(ready, b"+")
    for index, row in enumerate(follow_rows(directory / "metrics.jsonl", 0, parent.wait)):
        if index >= run.step:
            run.log({"step": row.step, "time": row.time, **row.metrics})
    run.finish(exit_code=0 if parent.ok else 1)
    return code


def _init(directory: Path, settings: dict[str, Any]) -> tuple[Any, int]:
    """Return the W&B run and the exit code: 0, or `_OFFLINE_INSTEAD` if the server was out of reach."""
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
    """Return the W&B id of this run: random, and kept when the run is resumed or its directory moved."""
    file = directory / "wandb" / "evorl.id"
    if not file.exists():
        file.write_text(os.urandom(6).hex())
    return file.read_text()


class _Parent:
    """State of the run as seen on stdin, read by a thread because the library may block the main thread."""

    def __init__(self, child_timeout_s: int) -> None:
        self.ok = False
        self._over = threading.Event()
        threading.Thread(target=self._listen, args=(child_timeout_s,), daemon=True).start()

    def wait(self) -> bool:
        return self._over.wait(_PERIOD_S)

    def _listen(self, child_timeout_s: int) -> None:
        self.ok = sys.stdin.readline() == "done\n"
        self._over.set()
        signal.alarm(child_timeout_s)  # ends the process even if the library blocks


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
