"""Memory that is left, below the limits of control groups."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from evorl.util.memory import available, gigabytes


class Machine:
    available, total = 10_000_000_000, 16_000_000_000


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Machine)


def group(root: Path, path: str, **files: str) -> None:
    (root / path).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / path / name.replace("__", ".")).write_text(f"{text}\n")


def own(root: Path, text: str) -> None:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(text)


def test_without_a_limit_the_machine_bounds(tmp_path: Path) -> None:
    assert available(tmp_path) == (10_000_000_000, "this machine has 16 GB")
    own(tmp_path, "0::/a\n")
    group(tmp_path, "sys/fs/cgroup/a", memory__max="max", memory__current="5", memory__stat="inactive_file 1")
    assert available(tmp_path).left == 10_000_000_000


def test_the_tightest_group_bounds_and_file_cache_does_not_count(tmp_path: Path) -> None:
    own(tmp_path, "0::/a/b\n")
    stat = "anon 7\ninactive_file 1000000000"
    group(tmp_path, "sys/fs/cgroup/a", memory__max="4000000000", memory__current="3000000000", memory__stat=stat)
    group(tmp_path, "sys/fs/cgroup/a/b", memory__max="8000000000", memory__current="2000000000", memory__stat=stat)
    assert available(tmp_path) == (2_000_000_000, "the limit of its cgroup is 4 GB")


def test_a_container_sees_its_own_group_at_the_root(tmp_path: Path) -> None:
    own(tmp_path, "0::/../elsewhere\n")
    files = {"memory__max": "2000000000", "memory__current": "1500000000", "memory__stat": "inactive_file 0"}
    group(tmp_path, "sys/fs/cgroup", **files)
    assert available(tmp_path).left == 500_000_000


def test_groups_of_version_1(tmp_path: Path) -> None:
    own(tmp_path, "5:cpu,cpuacct:/x\n4:memory:/docker/x\n")
    group(
        tmp_path, "sys/fs/cgroup/memory", memory__limit_in_bytes="3000000000", memory__usage_in_bytes="4000000000",
        memory__stat="inactive_file 9\ntotal_inactive_file 500000000",
    )  # fmt: skip
    assert available(tmp_path) == (0, "the limit of its cgroup is 3 GB")


def test_bytes_in_words() -> None:
    assert [gigabytes(x) for x in (28.24e9, 2e9, 5.5e6)] == ["28.2 GB", "2 GB", "5.5 MB"]
