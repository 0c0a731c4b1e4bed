"""Progress of a run: a live table on a terminal, plain lines in a pipe."""

from __future__ import annotations

import _thread
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from evorl.util.numbers import format_number
from evorl.util.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

TABLE_ROWS = 8
"""Individuals in the table of the best."""
TABLE_COLUMNS = 10
"""Columns in the table of the best."""

_LIVE_PERIOD_S = 0.2
_PLAIN_PERIOD_S = 5.0


def _signed(value: float) -> str:
    return format_number(value, signed=True)


# Rows of the live table: label, metric and form of each number.
_ROWS: dict[str, tuple[tuple[str, str, Callable[[float], str]], ...]] = {
    "episodes": (
        ("return", "train/return", _signed),
        ("length", "train/episode_length", format_number),
        ("finished", "train/episodes", format_number),
    ),
    "learning": (
        ("policy", "loss/policy", _signed),
        ("value", "loss/value", format_number),
        ("entropy", "policy/entropy", format_number),
        ("kl", "policy/kl", format_number),
        ("lr", "optimizer/lr", format_number),
    ),
    "evaluation": (
        ("return", "eval/return_mean", _signed),
        ("std", "eval/return_std", format_number),
        ("min", "eval/return_min", _signed),
        ("max", "eval/return_max", _signed),
    ),
    "population": (
        ("generation", "population/generation", format_number),
        ("evaluations", "population/evaluations", format_number),
        ("best", "population/best", _signed),
        ("population mean", "population/mean", _signed),
        ("score", "population/score", _signed),
    ),
}


class _Muted:
    """Keeps the "evorl" logger's messages from other loggers while terminals are open, of one thread or several."""

    def __init__(self) -> None:
        self._lock, self._open, self._propagated = threading.Lock(), 0, True

    def begin(self, logger: logging.Logger) -> None:
        with self._lock:
            if not self._open:
                self._propagated, logger.propagate = logger.propagate, False
            self._open += 1

    def end(self, logger: logging.Logger) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                logger.propagate = self._propagated


_MUTED = _Muted()


class Terminal:
    """Display of a run's progress on stdout, and of the warnings of the "evorl" logger.

    ``budget`` is in steps, ``seconds`` is the rest of the time limit. The time left refers to the one that ends sooner,
    at the pace since ``start`` (the step at which this process began). ``individuals`` returns the best individuals of
    a population, one row each; it is called on every drawing.
    """

    def __init__(
        self,
        budget: int,
        seconds: float | None = None,
        start: int = 0,
        stream: TextIO | None = None,
        individuals: Callable[[], Sequence[Mapping[str, Any]]] = list,
    ) -> None:
        self._individuals = individuals
        self._stream = stream or sys.stdout
        self._budget, self._seconds = budget, seconds
        self._start = self._step = start
        self._began = time.monotonic()
        self._shown, self._shown_at = True, -float("inf")
        self._metrics: dict[str, float] = {}
        self._evaluated: int | None = None
        self._evaluating = ""  # how far the evaluation at work is
        self._live: Live | None = None
        self._drawing = threading.RLock()  # rich mixes the output of threads
        self._handler = _Handler(self)

    def __enter__(self) -> Self:
        logger = logging.getLogger("evorl")
        _MUTED.begin(logger)
        logger.addHandler(self._handler)
        if interactive(self._stream):
            from rich.live import Live

            self._live = Live(console=_console(self._stream), auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shown:
            self._show()
        with self._drawing:
            if self._live:
                self._live.stop()
                self._live = None
        logger = logging.getLogger("evorl")
        logger.removeHandler(self._handler)
        _MUTED.end(logger)

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store the newest metrics; show them once per period, and evaluations at once."""
        self._step, self._shown, self._evaluating = step, False, ""
        self._metrics.update(metrics)
        evaluated = any(name.startswith("eval/") for name in metrics)
        if evaluated:
            self._evaluated = step
            self._show(evaluated)
        period = _LIVE_PERIOD_S if self._live else _PLAIN_PERIOD_S
        if time.monotonic() - self._shown_at >= period:
            self._show()

    def show_evaluation(self, text: str) -> None:
        """Show how far an evaluation is: in the live table until the next `update`, or as a line."""
        if self._live is None:
            self.print_line(text)
            return
        self._evaluating = text
        self._show()

    def print_line(self, text: str) -> None:
        """Print a line, above the live table where there is one."""
        text = printable(text, lines=True)
        with self._drawing:
            if self._live:
                from rich.text import Text

                self._live.console.print(Text(text))  # not markup=False, which the table below would be drawn with
            else:
                print(text, file=self._stream, flush=True)

    def print_from_signal_handler(self, text: str) -> None:
        """Print a line from a signal handler: above the live table, or on stderr without one.

        The handler may have interrupted the drawing, so another thread waits for its end. It is started by
        ``_thread``, because the signal may have interrupted ``threading`` while it holds its locks.
        """
        if self._live:
            _thread.start_new_thread(self.print_line, (text,))
        else:
            with suppress(OSError):  # stderr may be closed
                os.write(2, f"{text}\n".encode())

    def _show(self, evaluated: bool = False) -> None:
        self._shown = True
        if self._live or not evaluated:  # in a pipe the line of an evaluation does not replace a progress line
            self._shown_at = time.monotonic()
        with self._drawing:
            if self._live:
                self._live.update(self._table(), refresh=True)
            else:
                self.print_line(self._line("evaluation" if evaluated else None))

    # ------------------------------------------------------------------ content

    def _line(self, only: str | None) -> str:
        rows = [only] if only else [title for title in _ROWS if title != "evaluation"]
        numbers = [f"{label} {text}" for title in rows for label, text in self._numbers(title)]
        if only:
            return "  ".join([f"evaluation at {count(self._step)}", *numbers])
        return "  ".join([*self._progress(), *numbers])

    def _table(self) -> RenderableType:
        from rich.console import Group
        from rich.markup import escape
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        head = Table.grid(padding=(0, 2))
        head.add_row(ProgressBar(total=1.0, completed=self._fraction(), width=24), *self._progress())
        body = Table.grid(padding=(0, 2))
        for title in _ROWS:
            if numbers := self._numbers(title):
                label = f"{title} at {count(self._evaluated or 0)}" if title == "evaluation" else title
                body.add_row(
                    f"[dim]{label}[/]", "   ".join(f"[dim]{escape(name)}[/] [bold]{text}[/]" for name, text in numbers)
                )
        if self._evaluating:
            body.add_row("[dim]evaluation[/]", self._evaluating)
        rows = self._individuals()
        return Group(head, body, individuals_table(rows)) if rows else Group(head, body)

    def _progress(self) -> list[str]:
        words = [f"{count(self._step)} / {count(self._budget)} steps", f"{self._fraction():.0%}"]
        if "speed/steps_per_second" in self._metrics:
            words.append(f"{count(self._metrics['speed/steps_per_second'])}/s")
        words.append(clock(self._elapsed()))
        left = self._left()
        return [*words, f"{clock(left)} left"] if left is not None else words

    def _numbers(self, title: str) -> list[tuple[str, str]]:
        shown = [(label, name, form) for label, name, form in _ROWS[title] if name in self._metrics]
        if title == "evaluation":
            shown += [
                (name[5:-5], name, format_number)
                for name in self._metrics
                if name.startswith("eval/") and name.endswith("_mean") and name not in _NOT_RESULTS
            ]
        return [(printable(label), form(self._metrics[name])) for label, name, form in shown]

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _fraction(self) -> float:
        used = self._step / self._budget
        if self._seconds:
            used = max(used, self._elapsed() / self._seconds)
        return min(used, 1.0)

    def _left(self) -> float | None:
        """Seconds to the end of the budget; None before there is a pace."""
        done = self._step - self._start
        if done <= 0:
            return None
        left = max(self._budget - self._step, 0) * self._elapsed() / done
        return left if self._seconds is None else max(min(left, self._seconds - self._elapsed()), 0.0)


def individuals_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with one line per row; its columns are those of the first row."""
    from rich.markup import escape
    from rich.table import Table

    names = list(rows[0])[:TABLE_COLUMNS]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in names:
        is_text = isinstance(rows[0][name], str)
        header = escape(printable(name))
        table.add_column(header, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis")
    for row in rows[:TABLE_ROWS]:
        table.add_row(*(escape(_short(row.get(name))) for name in names))
    return table


_NOT_RESULTS = ("eval/return_mean", "eval/length_mean", "eval/stochastic_return_mean")


def print_summary(result: Mapping[str, Any], directory: Path, stream: TextIO | None = None) -> None:
    """Print the content of result.json at the end of a run.

    The fitness of the best individual comes from held-out episodes, or from its evaluation during the run if it was not
    replayed; the lines below it come from the episodes of the final evaluation.
    """
    stream = stream or sys.stdout
    lines, best, evaluated = list[tuple[str, str]](), result.get("best") or {}, result.get("eval", {})
    if "individual" in best:
        lines.append(("best", _best_individual(best)))
    elif result.get("fitness") is not None:
        lines.append(("fitness", format_number(result["fitness"])))
    lines += _result_lines(evaluated, () if "individual" in best and "return_mean" in evaluated else ("fitness_mean",))
    lines.append(("steps", f"{result['steps']:,} in {clock(result['seconds'])}"))
    if limits := [f"budget.{name}" for name in result.get("ended_by", ()) if name != "steps"]:
        lines.append(("ended by", " and ".join(limits)))
    lines.append(("kept in", str(directory)))
    lines = [(printable(name), printable(value)) for name, value in lines]
    width = max(len(name) for name, _ in lines)
    console = _console(stream) if interactive(stream) else None
    for name, value in lines:
        if console:
            console.print(f"{name:<{width}}  ", style="dim", markup=False, highlight=False, end="")
            console.print(value, style="bold", markup=False, highlight=False, soft_wrap=True)
        else:
            print(f"{name:<{width}}  {value}", file=stream, flush=True)


def _best_individual(best: Mapping[str, Any]) -> str:
    """Say how good the best individual is, and how that is known."""
    heldout, text = best.get("heldout"), format_number(best["fitness"])
    if "score" in best:
        return f"individual {best['individual']}, {best['selected_by']} {format_number(best['score'])}; fitness {text}"
    if heldout is None:
        return f"{text}, individual {best['individual']} as it evolved"
    if heldout["low"] is not None:
        text += f" ({format_number(heldout['low'])} to {format_number(heldout['high'])})"
    held = f"{heldout['episodes']} held-out episode{'s' * (heldout['episodes'] != 1)}"
    return f"{text} in {held}, individual {best['individual']}; {format_number(best['first_fitness'])} as it evolved"


def _result_lines(numbers: Mapping[str, Any], known: Collection[str]) -> list[tuple[str, str]]:
    """Return a line for each quantity not in ``known``: its mean, and its standard deviation and range if given."""
    lines = []
    for name, value in numbers.items():
        what, _, part = name.rpartition("_")
        if name in known or (part in ("std", "min", "max") and f"{what}_mean" in numbers):
            continue
        text, parts = _short(value), [numbers.get(f"{what}_{statistic}") for statistic in ("std", "min", "max")]
        if part == "mean" and None not in parts:
            text += " ± {}, {} to {}".format(*map(_short, parts))
        lines.append(((what if part == "mean" else name).replace("_", " "), text))
    return lines


def count(number: float) -> str:
    """Format a count with three digits: 950, 12.3k, 4.56M."""
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * scale:  # 999,600 is 1M, not 1000k
            return f"{number / scale:.3g}{suffix}"
    return f"{number:.0f}"


def clock(seconds: float) -> str:
    """Format a duration: 0:38, 12:05, 3:02:59."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _short(value: Any) -> str:
    return format_number(value) if isinstance(value, float) else printable(value)


def interactive(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that supports cursor control."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream)


class _Handler(logging.Handler):
    """A log handler that prints warnings above the live table."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.print_line(f"{record.levelname.lower()}: {record.getMessage()}")
