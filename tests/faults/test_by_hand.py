"""A Ray cluster started with scripts/ as docs/cluster.md says, a run that joins it, and its end by process id."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness import fingerprint
from ray_machines import Node, surroundings

pytestmark = pytest.mark.fault


def test_two_nodes_started_by_hand(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with surroundings(tmp_path) as environment:
        nodes = [Node(environment, "ray_head", f"--port={address.split(':')[1]}")]
        try:
            token = tmp_path / ".ray" / "auth_token"
            assert token.stat().st_mode & 0o77 == 0
            nodes.append(Node(environment, "ray_worker", address))
            words = ["evorl.run", "mdp=pendulum", "cluster=ray", "cluster.workers=2", "rl.members=2", "+debug=tiny"]

            def run(place: str = address, into: str = "run", **env: str) -> subprocess.CompletedProcess[str]:
                command = [sys.executable, "-m", *words, f"cluster.address={place}", f"hydra.run.dir={into}"]
                return subprocess.run(command, cwd=tmp_path, env=environment | env, capture_output=True, text=True)

            strangers: list[dict[str, str]] = [
                *({}, {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64})
            ]
            for stranger in strangers:
                refused = run(**stranger)
                (line,) = refused.stderr.splitlines()
                assert refused.returncode == 2 and line.startswith("evorl: cluster.address: ")
                assert "asks for a token, and ours is missing or another: set RAY_AUTH_MODE=token" in line
            assert not (tmp_path / "run").exists()
            done = run(RAY_AUTH_MODE="token")
            assert done.returncode == 0, done.stderr
            other = run("auto", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64, RAY_ADDRESS=address)
            assert other.returncode == 2 and "ours is missing or another" in other.stderr
            found = run("auto", "again", RAY_AUTH_MODE="token", RAY_ADDRESS=address)
            assert (found.returncode, found.stderr) == (0, "")
            assert "joins the Ray of this machine" in found.stdout
            assert fingerprint(tmp_path / "again") == fingerprint(tmp_path / "run")
        finally:
            for node in reversed(nodes):
                node.end()
