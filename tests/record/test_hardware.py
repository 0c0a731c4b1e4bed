"""Readings of the hardware: what processes use, and energy and GPUs where they can be read."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from evorl.record import hardware, metrics
from evorl.record.core import Record, Recorder
from evorl.record.hardware import Hardware
from tests.harness import experiment_of, fingerprint, rows, train_in

NAMED = """
import sys
from pathlib import Path
Path("/proc/self/comm").write_text(sys.argv[1])
end = __import__("time").process_time() + float(sys.argv[2])
while __import__("time").process_time() < end: pass
print("ready", flush=True)
sys.stdin.read()
"""


def child(name: str, seconds: float = 0.0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", NAMED, name, str(seconds)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()
    assert process.returncode == 0


def test_each_process_has_its_processor_time_and_memory(tmp_path: Path) -> None:
    reader = Hardware(tmp_path)
    others = "hardware/memory_others" in reader.read()  # tests before this one may have left some
    began, spent = time.monotonic(), time.process_time()
    names = (("worker 3", 0.3), ("learner 1", 0.0), ("a world", 0.0), ("another world", 0.0))
    with ExitStack() as stack:  # which ends them
        children = [stack.enter_context(child(name, seconds)) for name, seconds in names]
        for one in children:
            ready(one)
        found = reader.read()
        seconds, spent = time.monotonic() - began, time.process_time() - spent
        metrics.check(found)
        parts = {name: found[f"hardware/cpu_{name}"] for name in ("driver", "worker_3", "learner_1", "others")}
        told = {name for name in found if name.startswith("hardware/cpu_")}
        assert told == {f"hardware/cpu_{name}" for name in parts}
        assert sum(parts.values()) == pytest.approx(found["hardware/cpu"])
        tick = 2 / os.sysconf("SC_CLK_TCK")  # the system counts in hundredths of a second
        assert 0.3 - tick <= parts["worker_3"] * seconds <= 0.3 + 1.0  # and its start
        assert parts["driver"] * seconds == pytest.approx(spent, abs=2 * tick)
        memory = [found[f"hardware/memory_{name}"] for name in parts]
        assert sum(memory) == pytest.approx(found["hardware/memory"]) and min(memory) > 1
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        assert memory[0] == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, rel=0.2)
        end(children[0])
        again = reader.read()
        assert "hardware/cpu_worker_3" not in again and again["hardware/cpu_others"] < 1
        for one in children[1:]:
            end(one)
    assert ("hardware/memory_others" in reader.read()) == others


def test_machine(tmp_path: Path) -> None:
    reader = Hardware(tmp_path)
    last = time.monotonic() + 0.1
    while time.monotonic() < last:
        pass
    found = reader.read()
    assert 0 < found["hardware/machine_cpu"] <= 1 and 0 < found["hardware/machine_memory"] < 1
    assert found["hardware/network_sent"] >= 0 and found["hardware/network_received"] >= 0


# ------------------------------------------------------------------ energy


def package(powercap: Path, name: str, joules: float, kind: str = "package-0", largest: float = 1000.0) -> Path:
    place = powercap / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "name").write_text(f"{kind}\n")
    (place / "max_energy_range_uj").write_text(f"{largest * 1e6:.0f}\n")
    (place / "energy_uj").write_text(f"{joules * 1e6:.0f}\n")
    return place / "energy_uj"


def test_energy_is_that_of_all_packages_since_the_last_reading(tmp_path: Path) -> None:
    package(tmp_path, "intel-rapl:0", 10.0)
    package(tmp_path, "intel-rapl:1", 990.0, "package-1")
    package(tmp_path, "intel-rapl:0:0", 5.0, "core")  # a part of package 0
    package(tmp_path, "intel-rapl:2", 7.0, "psys")  # contains both packages
    reader = Hardware(tmp_path)
    package(tmp_path, "intel-rapl:0", 12.5)
    package(tmp_path, "intel-rapl:1", 4.0, "package-1")  # it began again after 1000
    package(tmp_path, "intel-rapl:0:0", 6.0, "core")
    package(tmp_path, "intel-rapl:2", 70.0, "psys")
    assert reader.read()["hardware/energy_cpu"] == pytest.approx(2.5 + 14.0)
    assert reader.read()["hardware/energy_cpu"] == 0


def test_no_energy_where_a_counter_cannot_be_read(tmp_path: Path) -> None:
    first = package(tmp_path, "intel-rapl:0", 10.0)
    second = package(tmp_path, "intel-rapl:1", 10.0, "package-1")
    reader = Hardware(tmp_path)
    first.unlink()
    assert "hardware/energy_cpu" not in reader.read()
    package(tmp_path, "intel-rapl:0", 20.0)
    assert "hardware/energy_cpu" not in reader.read()  # the reading before it is missing
    assert reader.read()["hardware/energy_cpu"] == 0
    second.unlink()
    assert "hardware/energy_cpu" not in Hardware(tmp_path).read()


# ------------------------------------------------------------------ GPUs


class NVML(ModuleType):
    """A stand-in for pynvml with three GPUs; the last has no counter of energy."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.joules = [5000.0, 7.0, 0.0]

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return {"GPU-a": 0, "GPU-b": 1}[name]

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=10 * (gpu + 1))

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(used=(gpu + 1) * 2**30)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        if gpu == 2:
            raise self.NVMLError("Not Supported")
        return int(self.joules[gpu] * 1000)


@pytest.mark.parametrize(
    ("visible", "gpus"), [(None, [0, 1, 2]), ("1", [1]), ("GPU-b,GPU-a", [1, 0]), ("", []), ("2,0", [2, 0])]
)
def test_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: list[int]) -> None:
    nvml = NVML()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    reader = Hardware(tmp_path)
    assert not any("energy_gpu" in name for name in reader.read())  # there is no reading before it
    nvml.joules = [5250.0, 8.0, 0.0]
    found = {name: x for name, x in reader.read().items() if "gpu" in name}
    expected = {}
    for index, gpu in enumerate(gpus):
        expected |= {f"hardware/gpu_{index}": 0.1 * (gpu + 1), f"hardware/gpu_memory_{index}": 1024.0 * (gpu + 1)}
        expected |= {f"hardware/energy_gpu_{index}": [250.0, 1.0][gpu]} if gpu < 2 else {}
    metrics.check(found)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount"])
def test_no_gpus_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    nvml = NVML()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, broken, lambda: 1 / 0)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert not any("gpu" in name for name in Hardware(tmp_path).read())


# ------------------------------------------------------------------ in the rows of a run


def test_rows_have_readings_when_they_are_due_and_the_state_has_none(tmp_path: Path, monkeypatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(hardware, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(hardware, "MOST", 1.0)
    with Recorder(tmp_path, Record(tensorboard=False), {}) as recorder:
        for step in range(20):
            recorder.write(step, {"train/return": 0.0})
        assert recorder.state_dict()["steps"] == {"train": 19}
    with_readings = [row["step"] for row in rows(tmp_path) if "hardware/cpu" in row]
    assert with_readings == [4, 8, 12, 16]  # `due` looks at the clock once for each row, `read` twice


def test_readings_take_a_small_share_of_the_time(tmp_path: Path, monkeypatch) -> None:
    clock = iter([0.0, 5.0, 5.25, 9.0, 129.9, 130.0])
    monkeypatch.setattr(hardware, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    reader = Hardware(tmp_path)
    reader.read()  # a quarter of a second, at 5.0
    assert [reader.due() for _ in range(3)] == [False, False, True]


def test_off(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "PERIOD_S", 0.0)
    with Recorder(tmp_path, Record(tensorboard=False, hardware=False), {}) as recorder:
        recorder.write(1, {"train/return": 0.0})
    assert list(json.loads((tmp_path / "metrics.jsonl").read_text())) == ["step", "time", "train/return"]


SMALL = ("+debug=tiny", "mdp=cartpole", "record.tensorboard=false", "eval.every=0", "rl.members=2", "budget.steps=500")


def test_workers_are_named_and_the_bits_are_those_without_readings(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "PERIOD_S", 0.0)
    monkeypatch.setattr(hardware, "MOST", 1e9)
    train_in(tmp_path / "a", experiment_of(*SMALL, "cluster=processes", "cluster.workers=2"))
    found = rows(tmp_path / "a")
    wanted = {f"hardware/{what}_{name}" for what in ("cpu", "memory") for name in ("driver", "worker_0", "worker_1")}
    assert all(wanted <= row.keys() for row in found)
    train_in(tmp_path / "b", experiment_of(*SMALL, "record.hardware=false"))
    assert not any(name.startswith("hardware/") for row in rows(tmp_path / "b") for name in row)
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
