"""A world that starts programs; run as a program itself, a driver of two such that waits to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import chain
from typing import Any

from evorl.cluster.processes import Processes
from evorl.cluster.workers.group import RemoteGroup


class Parent:
    """Its programs stay in its process group, have one of their own, or a whole session."""

    def __init__(self, index: int) -> None:
        pass

    def begin(self) -> list[int]:
        ways: list[dict[str, Any]] = [{}, {"process_group": 0}, {"start_new_session": True}]
        forked = os.fork()  # and one that runs no other program
        if not forked:
            time.sleep(1000)
        return [forked, *(subprocess.Popen(["sleep", "1000"], **way).pid for way in ways)]

    def pid(self) -> int:
        return os.getpid()


def supervisors(group: RemoteGroup) -> list[int]:
    return [one.pid.number for one in group.pool.launcher._supervisors]


if __name__ == "__main__":
    group = Processes(workers=2).spawn(Parent, 2)
    assert isinstance(group, RemoteGroup)
    print(*supervisors(group), *group.all("pid"), *chain(*group.all("begin")), flush=True)
    sys.stdin.read()
