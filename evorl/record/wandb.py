"""Weights & Biases sink: a child process that reads ``metrics.jsonl``.

The library runs in a process of its own because it can block: without a network it keeps a process from exiting for
90 seconds. The run only starts the child and closes a pipe at the end:

* stdin of the child: one line of settings (JSON), then "done" at the end of the run; end of file if the run died;
* stdout: a "+" once the library is ready;
* stderr: ``wandb/evorl.log``.

Row n of the file becomes step n of W&B's history, with the environment step as its x axis. A resumed online run keeps
its id, and the server says how many rows it has: these are skipped, since an exact resume produces the same rows
again. So every row arrives once, however often run, child or server were interrupted, and `upload` sends what the
server still lacks of a run that is over. Of an asynchronous run that was killed the server keeps the rows that it had,
and not those that the resumed run has in their place. An offline run is written completely at each start, so the
newest offline directory contains all rows.

Films and the result become the run's summary. With ``record.artifacts`` checkpoints become versions of an artifact;
the server keeps one version of equal files, so a checkpoint that is sent again adds none.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil

from evorl.record.metrics_tail import follow_rows
from evorl.record.result import sound_result
from evorl.util import command, run_directory
from evorl.util.poll import readable

HOME = "wandb"
"""Where the library writes in a run directory, and the sink its log, lock and id."""
LOG = f"{HOME}/evorl.log"
_CLOSE_TIMEOUT_S = 2.0
_CLOSE_TIMEOUT_ONLINE_S = 15.0  # if the child has reached its server
_CHILD_TIMEOUT_S = 60  # after the end of the run the child exits by SIGALRM, even if the library blocks
_ARTIFACTS_TIMEOUT_S = 600  # the same if it has checkpoints to send
UPLOAD_TIMEOUT_S = 300
_INIT_TIMEOUT_S = 30.0
_PERIOD_S = 1.0
_OFFLINE_INSTEAD, NO_SERVER = 3, 4  # exit codes
_log = logging.getLogger("evorl")


def run_settings(directory: Path, record: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run at W&B. ``record``: config group ``record``; ``config``: the whole config."""
    return {
        "project": record["project"],
        "group": record.get("group"),
        "name": record.get("name") or directory.name,
        "tags": [*record.get("tags", ())],
        "job_type": record.get("job_type") or ("evolve" if config.get("ec") else "train"),
        "artifacts": bool(record.get("artifacts")),
        "config": {key: value for key, value in config.items() if key != "record"},
    }


def run_id(directory: Path) -> str:
    """Return the W&B id of a run: random, and kept when the run is resumed or its directory moved.

    Raises ValueError if the file of the id holds none.
    """
    name = f"{HOME}/evorl.id"
    run_directory.make_folder(directory, HOME)
    if not run_directory.exists(directory, name):
        run_directory.replace(directory, name, os.urandom(6).hex().encode())
    text = run_directory.read(directory, name, 1024).decode()
    if not re.fullmatch(r"[\w-]{1,128}", text, re.ASCII):
        raise ValueError(f"{directory / name} holds no id")
    return text


def quiet_settings() -> Any:
    """Return the library's settings: no output, and no readings of the hardware beside ours."""
    import wandb

    return wandb.Settings(
        silent=True, console="off", init_timeout=_INIT_TIMEOUT_S, disable_git=True, x_disable_stats=True
    )


def films_of(directory: Path) -> list[Path]:
    """Return the films of a run directory."""
    if not run_directory.is_folder(directory, "videos"):
        return []
    films = [entry.name for entry in run_directory.entries(directory, "videos") if entry.kind == "file"]
    return [directory / "videos" / name for name in films if Path(name).suffix in (".mp4", ".gif") and name[0] != "."]


def film(file: Path) -> Any:
    """Return a film as the library takes it."""
    import wandb

    kind: Any = file.suffix[1:]
    return wandb.Video(str(file), format=kind)


# ------------------------------------------------------------------ in the run's process


class WandB:
    """The sink in the run's process: starts the child, logs a warning if it fails, waits for it at the end.

    ``settings``: see `run_settings`; ``mode``: offline, online, or ``upload`` (online or not at all).
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], mode: str) -> None:
        home = directory / HOME
        run_directory.make_folder(directory, HOME)
        self._home, self._online, self._warned = home, mode != "offline", False
        timeout_s = _ARTIFACTS_TIMEOUT_S if settings["artifacts"] else _CHILD_TIMEOUT_S
        self._timeout_s = UPLOAD_TIMEOUT_S + timeout_s if mode == "upload" else timeout_s
        first_line = {**settings, "mode": mode, "child_timeout_s": self._timeout_s}
        with run_directory.opened(directory, LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "evorl.record.wandb", str(directory.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"},
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
        self._close_pipes(ok)
        try:
            self._child.wait(timeout)
            self.check()
        except subprocess.TimeoutExpired:
            threading.Thread(target=self._child.wait, daemon=True, name="wandb").start()  # else it became a zombie
            _log.warning(
                "W&B is not done yet: it has %d s more, in the background, to finish %s", self._timeout_s, self._home
            )

    def wait(self, ok: bool) -> None:
        """Wait until the child has sent everything. Raises `NoServer`, `NotSent`."""
        self._close_pipes(ok)
        try:
            code = self._child.wait()
        except BaseException:
            self._child.kill()
            self._child.wait()
            raise
        if code == NO_SERVER:
            raise NoServer(last_line(self._home.parent))
        if code:
            raise NotSent(self._reason(code))

    def _close_pipes(self, ok: bool) -> None:
        if ok:
            self._send(b"done\n")
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()

    def _send(self, line: bytes) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # `check` logs the reason
            run_directory.write_all(self._child.stdin.fileno(), line)

    def _ready(self) -> bool:
        assert self._child.stdout is not None
        return bool(readable([self._child.stdout], 0)) and self._child.poll() is None

    def _reason(self, code: int) -> str:
        if code == _OFFLINE_INSTEAD:
            return (
                f"could not reach its server; `{command.line('report', str(self._home.parent), 'wandb=report')}` or "
                f"`wandb sync {shlex.quote(str(self._home))}/offline-run-*` uploads the run"
            )
        if code == -signal.SIGALRM:
            return f"was not done within {self._timeout_s} s"
        return f"stopped with code {code} ({last_line(self._home.parent)})"


class NoServer(RuntimeError):
    """The W&B server was out of reach."""


class NotSent(RuntimeError):
    """The W&B server was reached and did not get everything."""


def upload(directory: Path, record: Mapping[str, Any], config: Mapping[str, Any], ok: bool) -> None:
    """Send to the server what it lacks of a run that is over. Raises `NoServer`, `NotSent`. Can be repeated.

    ``ok``: the run did not fail.
    """
    WandB(directory, run_settings(directory, record, config), "upload").wait(ok)


def last_line(directory: Path) -> str:
    """Return the last line of a directory's log, which has the cause of a child's failure."""
    try:
        lines = run_directory.read(directory, LOG, run_directory.ROWS).decode(errors="replace").strip().splitlines()
    except OSError:  # gone with the folder, or no descriptor is left: the run goes on without W&B
        lines = []
    return lines[-1].strip() if lines else "no output"


# ------------------------------------------------------------------ in the child


def main(directory: Path) -> int:
    """Read the settings, send every row until the run is over, and return the exit code."""
    ready = os.dup(1)
    os.dup2(2, 1)  # redirect prints of the library to the log
    settings = json.loads(sys.stdin.readline())
    parent = _Parent(settings.pop("child_timeout_s"))
    artifacts = settings.pop("artifacts")
    _wait_for_others(directory)
    run, code = _init(directory, settings)
    if run is None:
        return code
    with suppress(BrokenPipeError):  # the run may be over already
        os.write(ready, b"+")
    known = run.starting_step  # rows that the server has
    checkpoints = _checkpoints(run, directory) if artifacts else None

    def wait() -> bool:
        if checkpoints is not None and not run.offline:  # offline, only those that the run keeps at its end
            checkpoints.send()
        return parent.wait()

    for index, row in enumerate(follow_rows(directory / "metrics.jsonl", 0, wait)):
        if index >= known:
            run.log({"step": row.step, "time": row.time, **row.metrics}, step=index, commit=True)
    if checkpoints is not None:
        checkpoints.send()
    _summarize(run, directory, checkpoints)
    run.finish(exit_code=0 if parent.ok else 1)
    if checkpoints is not None and not run.offline:
        checkpoints.close()
    return code


def _wait_for_others(directory: Path) -> None:
    """Wait until no other process sends this run: one of an earlier attempt may still be at it."""
    import fcntl

    descriptor = run_directory.descriptor(directory, f"{HOME}/evorl.lock", os.O_RDWR | os.O_CREAT)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # until this process ends


def _init(directory: Path, settings: dict[str, Any]) -> tuple[Any, int]:
    """Return the W&B run and the exit code: 0, or `_OFFLINE_INSTEAD` if the server was out of reach.

    In mode upload there is no run then, and the code is `NO_SERVER`.
    """
    import wandb

    mode = settings.pop("mode")
    arguments = {
        **settings,
        "dir": str(directory),
        "resume": "allow",
        "id": run_id(directory),
        "reinit": "create_new",
        "settings": quiet_settings(),
    }
    try:
        run, code = wandb.init(mode="offline" if mode == "offline" else "online", **arguments), 0
    except Exception as error:
        if mode == "offline":
            raise
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        if mode == "upload":
            return None, NO_SERVER
        wandb.teardown()  # its process would not begin a run of this id again
        run, code = wandb.init(mode="offline", **arguments), _OFFLINE_INSTEAD
    run.define_metric("*", step_metric="step")
    return run, code


def _checkpoints(run: Any, directory: Path) -> Any:
    from evorl.record.wandb_artifacts import Checkpoints

    return Checkpoints(run, directory)


def _summarize(run: Any, directory: Path, checkpoints: Any) -> None:
    """Add films and, of a finished run, the result to the summary; tell the best checkpoint."""
    for file in films_of(directory):
        run.summary[f"films/{file.stem}"] = film(file)
    result = sound_result(directory)
    if result is None:
        return
    run.summary.update({f"result/{name}": value for name, value in _numbers(result)})
    best = result.get("best")
    if checkpoints is not None and best and "step" in best:
        # the best individual of a population is in the newest checkpoint
        checkpoints.tell_best(result["steps"] if "individual" in best else best["step"])


def _numbers(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float | None]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}/")
        elif value is None or isinstance(value, int | float):
            yield f"{prefix}{name}", value


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
        end_after(child_timeout_s)


def end_after(seconds: int) -> NoReturn:
    """End this process by SIGALRM, even if the library blocks, and with it the library's own process.

    It would try again for days, and send the same rows as a later process.
    """
    signal.alarm(seconds + 5)  # if this thread does not get there
    time.sleep(seconds)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()
    signal.alarm(0)
    os.kill(os.getpid(), signal.SIGALRM)
    raise AssertionError("a process survived SIGALRM")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
