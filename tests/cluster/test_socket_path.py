"""The directory of a group's socket when the path of the temporary directory is long."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path

import cluster_toys as toys
import pytest
import zmq

from evorl.cluster.processes import Processes
from evorl.cluster.processes.launcher import _unused_name
from evorl.cluster.ray.private_files import SocketDirectory, session_directory
from evorl.cluster.transport.host import MAX_SOCKET_PATH, short_directory


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / ("d" * 100)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    return place


def test_a_directory_is_not_used_if_socket_paths_in_it_are_too_long(tmp_path: Path) -> None:
    """The limit is the system's: a path of that many bytes can be bound, one byte more cannot."""
    below = "s" * (MAX_SOCKET_PATH - len(os.fsencode(tmp_path)) - len("/"))
    assert short_directory(below, str(tmp_path)) == str(tmp_path)
    assert short_directory(below + "s", str(tmp_path)) == "/tmp"
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(f"ipc://{tmp_path}/{below}")
        with pytest.raises(zmq.ZMQError):
            socket.bind(f"ipc://{tmp_path}/{below}s")


def test_the_length_of_a_path_is_counted_in_bytes() -> None:
    assert short_directory("group", "/" + "ä" * 60) == "/tmp"


def test_all_sockets_avoid_a_long_directory(deep: Path) -> None:
    with closing(SocketDirectory()) as directory:
        assert Path(directory.path).parent == Path("/tmp")
        assert os.stat(directory.path).st_mode & 0o077 == 0
        assert len(f"{directory.path}/group") <= MAX_SOCKET_PATH
    assert not Path(directory.path).exists()
    assert _unused_name().startswith("/tmp/evorl-")
    assert session_directory() == f"/tmp/evorl-{os.geteuid()}/ray"
    assert [*deep.iterdir()] == []


def test_a_group_with_a_long_temporary_directory(deep: Path) -> None:
    group = Processes(workers=1).spawn(toys.Counter, 1)
    try:
        assert group.all("echo", 1) == [1]
    finally:
        group.close()
    assert [*deep.iterdir()] == []
