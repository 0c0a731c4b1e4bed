import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evorl.record import terminal
from evorl.record.terminal import Terminal, clock, count, print_summary

TRAIN = {"train/return": 14.62, "train/episode_length": 412.3, "loss/policy": -0.0123, "loss/value": 0.431}
EVAL = {"eval/return_mean": 13.9, "eval/return_std": 2.1, "eval/length_mean": 400.0, "eval/win_mean": 0.97}
RESULT = {"steps": 27_500_000, "seconds": 134.2, "fitness": 15.216, "eval": {"return_mean": 15.2, "episodes": 60}}

SCRIPT = f"""
import logging, sys, threading
from pathlib import Path
from evorl.record.terminal import Terminal, print_summary
assert not {{"rich", "torch", "numpy"}} & sys.modules.keys()
with Terminal(1000) as terminal:
    terminal.update(250, {TRAIN} | {{"speed/steps_per_second": 205_123.0}})
    logging.getLogger("evorl").warning("disk [bold]full[/] at %d", 300)
    terminal.update(500, {EVAL})
    terminal.print_line("saved [1]")
    terminal.update(750, {{"train/return": 99.5}})
print_summary({RESULT}, Path("runs/x"))
"""


class Clock:
    """Time that passes when told."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(terminal, "time", fake)
    return fake


def in_terminal(columns: int, script: str = SCRIPT, **env: str) -> tuple[str, str]:
    """What a terminal is sent by a script: raw, and without the control sequences."""
    master, slave = os.openpty()
    words = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", **env}
    with subprocess.Popen([sys.executable, "-c", script], stdout=slave, stderr=slave, env=words) as child:
        os.close(slave)
        parts = []
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:  # how Linux says that the other side is closed
                break
            if not part:
                break
            parts.append(part)
        os.close(master)
        assert child.wait() == 0, b"".join(parts).decode()
    raw = b"".join(parts).decode()
    return raw, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw)


INTERRUPTED = f"""
import os, signal, time
from evorl.record.terminal import Terminal
with Terminal(1000) as terminal:
    signal.signal(signal.SIGINT, lambda number, frame: terminal.print_from_signal_handler("will save and stop"))
    terminal.update(250, {EVAL})
    console, said = terminal._live.console, []
    console.print, shown = lambda *w, **k: (shown(*w, **k), said.append(w)), console.print
    with terminal._drawing:  # as in the middle of a redraw
        os.kill(os.getpid(), signal.SIGINT)
        early = len(said)
    while not said:
        time.sleep(0.001)
    assert early == 0
    terminal.update(500, {EVAL})
"""


def test_message_of_a_signal_handler_stays_above_the_live_table() -> None:
    raw, _ = in_terminal(100, INTERRUPTED)
    before, after = raw.split("will save and stop")  # once
    assert before.endswith("\x1b[2K")  # in place of the table, from its first line
    assert before[before.rindex("250 / ") :].count("\x1b[1A") == after[
        after.index("250 / ") : after.index("500 / ")
    ].count("\x1b[1A")
    assert after.startswith("\r\n") and after.index("250 / ") < after.index("500 / ")


def test_on_a_terminal() -> None:
    raw, text = in_terminal(120)
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").splitlines()]
    assert "warning: disk [bold]full[/] at 300" in lines and "saved [1]" in lines
    last = len(lines) - 1 - next(i for i, line in enumerate(reversed(lines)) if "steps  " in line and "━" in line)
    assert re.search(r"━+.* 750 / 1k steps  75%  205k/s  0:0\d  0:0\d left", lines[last])
    assert re.fullmatch(r"episodes +return \+99\.5   length 412\.3", lines[last + 1])
    assert re.fullmatch(r"learning +policy -0\.0123   value 0\.431", lines[last + 2])
    assert re.fullmatch(r"evaluation at 500 +return \+13\.9   std 2\.1   win 0\.97", lines[last + 3])
    assert any(re.fullmatch(r"fitness +15\.22", line) for line in lines[last:])
    assert "\x1b[1A" in raw and raw.count("\x1b[?25l") == raw.count("\x1b[?25h")  # redrawn in place; the cursor is back


def test_a_narrow_terminal_wraps_and_loses_nothing() -> None:
    _, text = in_terminal(40)
    assert all(word in text for word in ("+99.5", "0.431", "+13.9", "0.97"))
    assert all(len(line.rstrip()) <= 40 for line in text.replace("\r\n", "\n").replace("\r", "\n").splitlines())


def test_a_dumb_terminal_gets_plain_lines() -> None:
    raw, _ = in_terminal(120, TERM="dumb")
    assert "\x1b" not in raw and "return +14.62" in raw


def test_in_a_pipe() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout and done.stderr == ""
    assert re.match(r"250 / 1k steps  25%  205k/s  0:0\d  0:0\d left  return \+14\.62  length 412\.3  policy", lines[0])
    assert lines[1:3] == [
        "warning: disk [bold]full[/] at 300",
        "evaluation at 500  return +13.9  std 2.1  win 0.97",
    ]
    assert lines[3] == "saved [1]"
    assert lines[4].startswith("750 / 1k steps  75%") and "return +99.5" in lines[4]  # the last numbers are not lost
    assert [line.split() for line in lines[5:]] == [
        ["fitness", "15.22"], ["return", "15.2"], ["episodes", "60"], ["steps", "27,500,000", "in", "2:14"],
        ["kept", "in", "runs/x"],
    ]  # fmt: skip


def test_plain_lines_are_few(time: Clock) -> None:
    out = io.StringIO()
    with Terminal(1000, stream=out) as shown:
        for step in range(1, 101):
            time.now = step * 0.1
            shown.update(step, {"train/return": float(step)})
            if step % 30 == 0:
                shown.update(step, EVAL)
    starts = [line.split("  ")[0] for line in out.getvalue().splitlines()]
    # The first at once, evaluations at once, beside them one every five seconds, and the last.
    evaluations = [f"evaluation at {step}" for step in (30, 60, 90)]
    assert starts == ["1 / 1k steps", evaluations[0], "51 / 1k steps", *evaluations[1:], "100 / 1k steps"]


@pytest.mark.parametrize(
    ("start", "seconds", "step", "now", "expected"),
    [
        (0, None, 250, 10.0, "250 / 1k steps  25%  0:10  0:30 left"),
        (500, None, 750, 10.0, "750 / 1k steps  75%  0:10  0:10 left"),  # resumed: the pace is of this process
        (0, 20.0, 250, 10.0, "250 / 1k steps  50%  0:10  0:10 left"),  # time ends it first
        (0, 20.0, 900, 10.0, "900 / 1k steps  90%  0:10  0:01 left"),
        (0, None, 0, 10.0, "0 / 1k steps  0%  0:10"),
        (0, None, 1200, 10.0, "1.2k / 1k steps  100%  0:10  0:00 left"),
    ],
)
def test_time_left(time: Clock, start: int, seconds: float | None, step: int, now: float, expected: str) -> None:
    out = io.StringIO()
    with Terminal(1000, seconds, start, out) as shown:
        time.now = now
        shown.update(step, {})
    assert out.getvalue() == expected + "\n"


def test_terminals_of_several_threads_leave_the_logger_as_it_was() -> None:
    """They need not be closed in the order of their opening."""
    logger = logging.getLogger("evorl")
    before = logger.propagate, list(logger.handlers)
    first, second = Terminal(10, stream=io.StringIO()), Terminal(10, stream=io.StringIO())
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not logger.propagate
    second.__exit__(None, None, None)
    assert (logger.propagate, logger.handlers) == before


def test_the_logger_is_left_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("evorl")
    before = logger.propagate, list(logger.handlers)
    out = io.StringIO()
    with pytest.raises(RuntimeError), Terminal(10, stream=out):
        logger.info("not shown")
        logger.warning("shown")
        raise RuntimeError
    assert (logger.propagate, logger.handlers) == before
    assert out.getvalue() == "warning: shown\n" and "shown" not in caplog.text
    logger.warning("after")
    assert "after" in caplog.text and "after" not in out.getvalue()


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary({"steps": 5, "seconds": 1.0, "fitness": None, "eval": {}}, Path("runs/x"))
    assert capsys.readouterr().out == "steps    5 in 0:01\nkept in  runs/x\n"
    spread = {"return_mean": 1.0, "return_std": 0.5, "return_min": -2.0, "return_max": 3.0, "win_mean": 0.25}
    print_summary({"steps": 5, "seconds": 1.0, "eval": {**spread, "episodes": 2}}, Path("runs/x"))
    told = ["return    1 ± 0.5, -2 to 3", "win       0.25", "episodes  2", "steps     5 in 0:01", "kept in   runs/x"]
    assert capsys.readouterr().out.splitlines() == told
    for reached, last in (
        ({"seconds": 1.0, "fitness": 2.0}, "budget.seconds and budget.fitness"),
        ({"steps": 5}, None),
    ):
        print_summary({"steps": 5, "seconds": 1.0, "ended_by": reached, "eval": {}}, Path("runs/x"))
        lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
        assert lines.get("ended by") == last


def test_summary_separates_the_fitness_of_the_best_from_the_final_evaluation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = {"steps": 5, "seconds": 1.0, "fitness": 0.5, "eval": {"return_mean": 2.0, "fitness_mean": 0.25}}
    one, best = {"fitness": 0.5, "step": 3}, "best     0.5, individual 7 as it evolved"
    replayed = {"heldout": {"low": 0.25, "high": 0.75, "episodes": 60}, "first_fitness": 9.0}
    once = {"heldout": {"low": None, "high": None, "episodes": 1}, "first_fitness": 9.0}
    held = "best     0.5 (0.25 to 0.75) in 60 held-out episodes, individual 7; 9 as it evolved"
    for more, told in [
        ({"best": one}, ["fitness  0.5", "return   2"]),
        ({"best": {**one, "individual": 7}}, [best, "return   2", "fitness  0.25"]),
        ({"best": {**one, "individual": 7}, "eval": {"fitness_mean": 0.5, "f2_mean": 3.0}}, [best, "f2       3"]),
        ({"best": {**one, "individual": 7, **replayed}, "eval": {}}, [held]),
        (
            {"best": {**one, "individual": 7, **once}, "eval": {}},
            ["best     0.5 in 1 held-out episode, individual 7; 9 as it evolved"],
        ),
    ]:
        print_summary({**numbers, **more}, Path("x"))
        assert capsys.readouterr().out.splitlines()[:-2] == told


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (12_345, "12.3k"), (999_600, "1M"), (999_400, "999k"), (27.5e6, "27.5M")],
)
def test_count(number: float, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (38.4, "0:38"), (59.6, "1:00"), (725, "12:05"), (10979, "3:02:59")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


PEOPLE = """
from evorl.record.terminal import Terminal
rows = [{"individual": n, "fitness": 1.5 - n, "role": "goes on", "rl.lr": 3e-4} for n in range(12)]
with Terminal(1000, individuals=lambda: rows) as terminal:
    terminal.update(250, {"population/generation": 2, "population/evaluations": 12, "population/best": 1.5})
"""


def test_best_individuals_are_below_the_metrics() -> None:
    _, text = in_terminal(100, PEOPLE)
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").splitlines()]
    head = next(i for i, line in enumerate(lines) if line.startswith("individual"))
    assert re.fullmatch(r"population +generation 2   evaluations 12   best \+1\.5", lines[head - 1])
    assert lines[head].split() == ["individual", "fitness", "role", "rl.lr"]
    assert lines[head + 1].split() == ["0", "1.5", "goes", "on", "0.0003"]
    assert lines[head + 8].split()[0] == "7" and not any(line.split()[:1] == ["8"] for line in lines)


def test_in_a_pipe_a_population_is_a_line() -> None:
    out = io.StringIO()
    with Terminal(1000, stream=out, individuals=lambda: [{"individual": 1}]) as shown:
        shown.update(250, {"population/generation": 2, "population/evaluations": 12, "population/mean": 0.5})
        shown.update(400, {"eval/f1_mean": -0.25, "eval/f2_mean": -1.0})
    first, second = out.getvalue().splitlines()
    assert first.endswith("generation 2  evaluations 12  population mean +0.5")
    assert second == "evaluation at 400  f1 -0.25  f2 -1"
