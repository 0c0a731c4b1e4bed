"""What the speed programs share: live workers measured in turn, thread settings, medians, machine facts, result files.

Its import needs the standard library alone, so the peers' environment can run it too. Each program writes NAME.md and
NAME.json into its --out folder as soon as it has something new to say, so an interruption loses nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self, TypeVar

K = TypeVar("K")
T = TypeVar("T")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OURS = Path(sys.executable)
PEERS = ROOT / ".venv-peers" / "bin" / "python"
CLEANRL = ROOT / ".venv-peers" / "cleanrl"
"""CleanRL and what it alone needs: apart, since TensorBoard would slow the other peers' start."""
SAMPLE_FACTORY = ROOT / ".venv-peers" / "sample-factory"
"""Sample Factory, which needs an older NumPy and gymnasium than the other peers."""
median = statistics.median


# ------------------------------------------------------------------ workers


def serve(update: Callable[[], float], *packages: str, settle: int = 0) -> None:
    """Be a worker: answer each number of seconds on stdin with as many updates, [sum of what they return, seconds].

    ``update`` collects and learns from one batch and returns its environment steps, or what else is to be summed up.
    The first one, done before anything is answered, warms up. ``settle``: updates before each answer that do not count,
    for what would take the pause between two questions for waiting.
    """
    update()
    say({"versions": versions(*packages)})
    for line in sys.stdin:
        for _ in range(settle):
            update()
        total, began = 0.0, time.perf_counter()
        while not total or time.perf_counter() - began < float(line):
            total += update()
        say([total, time.perf_counter() - began])


def say(what: Any) -> None:
    """One line of JSON to whoever started this process."""
    print(json.dumps(what), flush=True)


def start(python: Path, program: str, *words: str, path: Path = ROOT, **options: Any) -> subprocess.Popen[str]:
    """A program of this folder in the given environment; evorl is on its path, or whatever is in ``path``.

    Without that environment this program ends.
    """
    if not python.exists():
        sys.exit(f"there is no {python}: make peers")
    from evorl.cluster.ray.private_files import ensure_token  # here, since the peers' environment lacks its packages

    ensure_token()  # other users of this machine can reach the ports of a Ray that a program starts
    environment = {**os.environ, "PYTHONPATH": str(path), "RAY_AUTH_MODE": "token", "PYTHONWARNINGS": "ignore"}
    command = [str(python), str(HERE / program), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT, **options)


def start_bound(python: Path, program: str, *words: str, path: Path = ROOT) -> subprocess.Popen[str]:
    """`start`, killed when this program ends for any reason: not for one whose children outlive it."""
    from evorl.cluster.processes.fork import with_parent  # here, since the peers' environment lacks its packages

    return start(python, program, *words, path=path, preexec_fn=with_parent())


def start_run(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """``evorl.run`` with these words, whose output nobody reads. It is killed when this program ends for any reason."""
    from evorl.cluster.processes.fork import with_parent

    command = [OURS, "-m", "evorl.run", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, preexec_fn=with_parent())


def answer(python: Path, program: str, *words: str) -> Any:
    """The last line of JSON that a program says; SystemExit tells that it failed."""
    with start_bound(python, program, *words) as process:
        try:
            out, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise SystemExit(f"{process.args!r} ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])


class Worker:
    """A live process that learns on request, so samples of many can alternate and start-up counts for none.

    ``stopped``: it and its children are stopped between questions, for one that plays on without being asked.
    """

    def __init__(self, python: Path, program: str, *words: str, path: Path = ROOT, stopped: bool = False) -> None:
        self._process = start(python, program, *words, path=path, stdin=subprocess.PIPE)
        self._stopped = stopped
        self.versions: dict[str, str] = self._hear()["versions"]
        self._signal(signal.SIGSTOP)

    def rate(self, seconds: float) -> float:
        """Environment steps per second over the updates begun within ``seconds``, at least one."""
        steps, took = self.answer(seconds)
        return float(steps / took)

    @property
    def resident(self) -> int:
        """Bytes of the process in memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])

    def answer(self, question: float) -> Any:
        """What the worker says to a number."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        print(question, file=self._process.stdin, flush=True)
        heard = self._hear()
        self._signal(signal.SIGSTOP)
        return heard

    def _signal(self, which: signal.Signals) -> None:
        """To the process and its children, if it is one that is stopped."""
        if self._stopped:
            import psutil  # here, since the peers' environment lacks it

            process = psutil.Process(self._process.pid)
            for each in (process, *process.children(recursive=True)):
                each.send_signal(which)

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended with {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._signal(signal.SIGCONT)
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def alternate(contestants: Mapping[K, Callable[[int], T]], rounds: range) -> dict[K, list[T]]:
    """Every contestant's answer in each round, in turn; every other round backwards, so that a drift hits all alike."""
    answers: dict[K, list[T]] = {name: [] for name in contestants}
    for number in rounds:
        for name, ask in list(contestants.items())[:: -1 if number % 2 else 1]:
            answers[name].append(ask(number))
            print(f"  round {number + 1}  {_flat(name)}: {_flat(answers[name][-1])}", flush=True)
    return answers


def microseconds(decide: Callable[[], object], seconds: float) -> float:
    """The mean processor time of a decision of one thread, over so many seconds of it."""
    count, began = 0, time.process_time()
    while (took := time.process_time() - began) < seconds:
        for _ in range(20):
            decide()
        count += 20
    return 1e6 * took / count


def in_block(decide: Callable[[], object], seconds: float, number: int) -> float:
    """`microseconds`, in a round of this number."""
    return microseconds(decide, seconds)


# ------------------------------------------------------------------ runs


def rows(path: Path, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The lines of a run's JSON file as they come, until it ends."""
    seen = 0
    while True:
        alive = process.poll() is None  # before reading, so that the last rows are read too
        new = path.read_bytes()[seen:] if path.exists() else b""
        whole = new[: new.rfind(b"\n") + 1]
        seen += len(whole)
        yield from map(json.loads, whole.splitlines())
        if not alive:
            return
        time.sleep(0.005)


# ------------------------------------------------------------------ results


def arguments(doc: str | None, **defaults: float) -> argparse.Namespace:
    """The command line: ``--out`` and the given numbers, each an option of its own type."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default {default}")
    return parser.parse_args()


def versions(*packages: str) -> dict[str, str]:
    """Versions of what is installed here."""
    releases = {"python": platform.python_version()}
    for package in packages:
        try:
            releases[package] = version(package)
        except PackageNotFoundError:
            releases[package] = "missing"
    return releases


def machine() -> dict[str, Any]:
    """Where and when this runs; ``load`` tells whether the machine was idle."""
    from evorl.reproduction import pages  # not for the programs of the peers' environment, which has no evorl

    return pages.machine("python " + " ".join([str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]]))


def bound(arrivals: Sequence[float | None], ends: Sequence[float]) -> str:
    """``>= `` where the median of when each was there, else of when it ended, is only a lower bound of the true one."""
    known = sorted(
        (end, True) if arrival is None else (arrival, False) for arrival, end in zip(arrivals, ends, strict=True)
    )
    return ">= " if any(cut_off for _, cut_off in known[: len(known) // 2 + 1]) else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; its first column is text, the others are numbers."""
    from evorl.analysis.tables import markdown_rows

    return markdown_rows(header, rows, numbers=True)


def page(title: str, doc: str | None, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A result for people: the table, then what was measured, in the words of the program's docstring."""
    words = (doc or "").split("\n\n    python ")[0]
    return [f"# {title}", "", *table(header, rows), "", words]


def save(out: Path | None, facts: Mapping[str, Any], lines: Sequence[str], data: Mapping[str, Any]) -> None:
    """Write what is known so far, as Markdown and as JSON with every sample; print it where there is no folder."""
    text = "\n".join([*lines, "", *(f"- {name}: {_flat(value)}" for name, value in facts.items()), ""])
    if out is None:
        print(text, flush=True)
        return
    out.mkdir(parents=True, exist_ok=True)
    name = Path(sys.argv[0]).stem
    (out / f"{name}.json").write_text(json.dumps({"machine": facts, **data}, indent=1) + "\n")
    (out / f"{name}.md").write_text(text)


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_flat(x)}" for name, x in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
