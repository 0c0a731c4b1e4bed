"""Nobody but their user reaches Ray's token and the sockets of a run's own Ray, whatever umask and earlier files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ray._raylet

from evorl.cluster.ray import private_files
from evorl.cluster.ray.own_ray import require_token
from evorl.cluster.ray.private_files import SocketDirectory, close_token, ensure_token, session_directory

compiled: Any = ray._raylet


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of a user with the usual umask."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in private_files.NAMED:
        monkeypatch.delenv(name, raising=False)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


def test_a_token_is_drawn_that_only_its_user_can_read_at_any_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, link = [], os.link

    def noted(source: Path, target: Path) -> None:
        seen.append(((mode(source), len(source.read_text())), target.exists()))
        link(source, target)

    monkeypatch.setattr(os, "link", noted)
    assert ensure_token()
    token = home / ".ray" / "auth_token"
    assert seen == [((0o600, 64), False)]  # complete and private before it has its name
    assert (mode(token), mode(token.parent)) == (0o600, 0o700)
    assert [*token.parent.iterdir()] == [token]
    drawn = token.read_text()
    assert not ensure_token() and token.read_text() == drawn


def test_a_file_system_without_hard_links(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: Path, target: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    assert ensure_token()
    (token,) = (home / ".ray").iterdir()
    assert token.name == "auth_token" and mode(token) == 0o600 and len(token.read_text()) == 64


def test_the_token_of_another_run_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(source: Path, target: Path) -> None:
        target.write_text("theirs")
        raise FileExistsError

    monkeypatch.setattr(os, "link", first)
    ensure_token()
    (token,) = (home / ".ray").iterdir()
    assert token.read_text() == "theirs"


@pytest.mark.parametrize("ensure", [ensure_token, close_token])
def test_a_token_of_an_earlier_time_is_made_private(home: Path, ensure: Any, caplog: pytest.LogCaptureFixture) -> None:
    token = home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("x" * 64)
    assert (mode(token), mode(token.parent)) == (0o644, 0o755)
    ensure()
    assert (mode(token), mode(token.parent), token.read_text()) == (0o600, 0o700, "x" * 64)
    assert caplog.text.count("could be read by other users") == 1
    ensure()
    assert caplog.text.count("could be read by other users") == 1


def test_a_token_that_the_user_names_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    assert not ensure_token()
    assert [*home.iterdir()] == []


def test_ray_takes_the_drawn_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    loader = compiled.AuthenticationTokenLoader.instance()
    loader.reset_cache()
    assert not loader.has_token(ignore_auth_mode=True)
    try:
        require_token()
        assert loader.get_raw_token(ignore_auth_mode=True) == (home / ".ray" / "auth_token").read_text()
    finally:
        monkeypatch.undo()
        compiled.Config.initialize("")
        loader.reset_cache()


def test_sessions_are_in_a_directory_of_their_user_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setenv("RAY_TMPDIR", place)
        own = Path(place, f"evorl-{os.geteuid()}")
        for _ in range(2):
            assert session_directory() == str(own / "ray")
            assert mode(own) == 0o700
            own.chmod(0o777)


def test_a_directory_that_another_user_has_taken_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setenv("RAY_TMPDIR", place)
        Path(place, f"evorl-{os.geteuid()}").symlink_to(home)
        found = Path(session_directory())
        assert found.parent.parent == Path(place) and not found.parent.is_symlink() and mode(found.parent) == 0o700


KILLED = """
import os, sys
from evorl.cluster.ray.private_files import SocketDirectory
directory = SocketDirectory()
open(f"{directory.path}/group", "w").close()
print(directory.path, flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_has_left_is_removed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a sweep on Ray has no other process that would remove it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": place},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process, closing(SocketDirectory()) as own:
            assert process.stdout is not None
            left = Path(process.stdout.readline().strip())
            target = Path(place, "target")
            target.mkdir()
            Path(place, left.name[:-8] + "linked").symlink_to(target)
            SocketDirectory().close()
            assert left.exists() and Path(own.path).exists()
            process.communicate()
            SocketDirectory().close()
            assert not left.exists() and Path(own.path).exists() and target.exists()
        assert process.returncode == -signal.SIGKILL and not Path(own.path).exists()
