"""How the clients in all languages connect to evorl, and how they notice that it has gone."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from evorl.mdp.remote.process import CLIENTS

IDLE = """
using System;
using System.Collections.Generic;

class Idle
{
    static void Main(string[] words)
    {
        var view = new Dictionary<string, object> { { "name", "view" }, { "shape", new[] { 1 } } };
        var offer = new Dictionary<string, object> {
            { "game", "idle" }, { "inputs", new[] { view } },
            { "action", new Dictionary<string, object> { { "kind", "discrete" }, { "n", new[] { 2 } } } } };
        var client = new Evorl.Client(offer, battle => null);
        while (true)
        {
            try { client.Poll(int.Parse(words[0])); }
            catch (Evorl.ClosedException) { Console.WriteLine("noticed"); return; }
            System.Threading.Thread.Sleep(5);
        }
    }
}
"""
GAMES = {
    "python": (sys.executable, f"{CLIENTS}/python/tag.py"),
    "node": ("node", f"{CLIENTS}/javascript/sumo/sumo.js"),
    "mono": ("mono", "goal.exe"),
    "godot3-server": ("godot3-server", "--path", f"{CLIENTS}/godot", "-s", "march.gd"),
}
HOST_AND_PORT = "EVORL_ADDRESS must be HOST:PORT"
NO_PATH = ("mono", "godot3-server")
"""Those that take no Unix socket."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs in C# are, if they can be made."""
    made = tmp_path_factory.mktemp("games")
    if shutil.which("mcs") is not None:
        (made / "Idle.cs").write_text(IDLE, "utf-8")
        for name, source in (("goal", CLIENTS / "csharp" / "Goal.cs"), ("idle", made / "Idle.cs")):
            sources = [str(CLIENTS / "csharp" / "Evorl.cs"), str(source)]
            subprocess.run(["mcs", "-warnaserror", f"-out:{made}/{name}.exe", *sources], check=True)
    return made


def needs(program: str) -> None:
    lacking = [name for name in (program, *(["mcs"] if program == "mono" else [])) if shutil.which(name) is None]
    if program != "python" and lacking:
        pytest.skip(f"no {lacking[0]}, which `make test-all` installs as root")


def environment(folder: Path, address: str) -> dict[str, str]:
    return {**os.environ, "EVORL_ADDRESS": address, "HOME": str(folder)}  # Godot writes there


@contextmanager
def connected(
    listens: socket.socket, folder: Path, *words: str
) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """The connection of a game that this starts, after its hello."""
    host, port = listens.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    listens.settimeout(20)
    game = subprocess.Popen(words, cwd=folder, env=environment(folder, address), stdout=subprocess.PIPE, text=True)
    try:
        with listens.accept()[0] as line:
            line.settimeout(20)
            (size,) = struct.unpack("<I", line.recv(4, socket.MSG_WAITALL))
            assert msgspec.msgpack.decode(line.recv(size, socket.MSG_WAITALL))["type"] == "hello"
            yield line, game
    finally:
        game.kill()
        game.communicate()


@pytest.mark.parametrize("program", GAMES)
def test_an_address_of_ipv6_has_brackets(program: str, folder: Path) -> None:
    needs(program)
    try:
        listens = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listens, connected(listens, folder, *GAMES[program]) as (line, game):
        line.close()
        assert game.wait(10) == 0, "and the game ends with its connection"


@pytest.mark.parametrize(
    ("program", "address"),
    [
        *(
            (program, address)
            for program in GAMES
            for address in ("5005", "", "http://127.0.0.1:5005", "tcp:a:7", "127.0.0.1:70000")
        ),
        *((program, "unix:/tmp/game") for program in NO_PATH),
    ],
)
def test_an_address_that_a_client_does_not_take_is_one_line(program: str, address: str, folder: Path) -> None:
    needs(program)
    told = environment(folder, address)
    done = subprocess.run(GAMES[program], cwd=folder, env=told, capture_output=True, text=True, timeout=20)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.endswith(f"and is '{address}'")]
    assert said and HOST_AND_PORT in said[0]  # mono says it twice


@pytest.mark.parametrize("milliseconds", [0, 60_000])
def test_a_poll_in_csharp_notices_the_end_of_the_connection(milliseconds: int, folder: Path) -> None:
    needs("mono")
    with (
        socket.create_server(("127.0.0.1", 0)) as listens,
        connected(listens, folder, "mono", "idle.exe", str(milliseconds)) as (line, game),
    ):
        line.close()
        assert game.wait(10) == 0
        assert game.stdout is not None and game.stdout.read() == "noticed\n"
