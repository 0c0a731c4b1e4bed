"""Readings of the hardware: what each process of a run uses, and what its machine and its GPUs do.

Processor time, memory and network are read with psutil, GPUs with NVML (package nvidia-ml-py, extra ``gpu``), and the
energy of the processor from Intel's and AMD's counters (RAPL) in ``/sys/class/powercap``, which only root may read on
most machines. What cannot be read is left out.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

PERIOD_S = 5.0
"""Least seconds between two readings."""
MOST = 1 / 500
"""Largest share of a run's time that readings take. One looks at every process of the machine, for milliseconds."""
MIB = 2**20
_NAMED = re.compile(r"(worker|learner) (\d+)")


class Hardware:
    """Readings of this process and of those that it started, of the machine's network and energy, and of GPUs.

    A rate or an amount covers the time since the reading before. The first one covers the time since this object. The
    energy of GPUs is counted from the first reading on, which has none.
    ``powercap``: the directory of the energy counters.
    """

    def __init__(self, powercap: Path = Path("/sys/class/powercap")) -> None:
        self._self = psutil.Process()
        self._processors = psutil.cpu_count() or 1
        self._packages = _packages(powercap)
        self._gpus: _Gpus | None = None
        self._last, self._period = time.monotonic(), PERIOD_S
        self._seconds = {key: seconds for key, _, seconds, _ in self._processes()}
        self._busy, self._network, self._energy = _busy_seconds(), _network_bytes(), self._energy_counters()

    def due(self) -> bool:
        """Return whether the last reading is long enough ago for another one."""
        return time.monotonic() - self._last >= self._period

    def read(self) -> dict[str, float]:
        """Return the metrics ``hardware/...`` of this moment."""
        time_s = time.monotonic()
        elapsed, self._last = max(time_s - self._last, 1e-9), time_s
        readings = self._read_processes(elapsed) | self._read_machine(elapsed) | self._read_energy() | self._read_gpus()
        self._period = max(PERIOD_S, (time.monotonic() - time_s) / MOST)
        return readings

    def _read_processes(self, elapsed: float) -> dict[str, float]:
        cores, memory, seconds_of = dict[str, float](), dict[str, float](), dict[tuple[int, float], float]()
        for key, name, seconds, resident in self._processes():
            seconds_of[key] = seconds
            cores[name] = cores.get(name, 0.0) + (seconds - self._seconds.get(key, 0.0)) / elapsed
            memory[name] = memory.get(name, 0.0) + resident / MIB
        self._seconds = seconds_of
        readings = {"hardware/cpu": sum(cores.values()), "hardware/memory": sum(memory.values())}
        for name in cores:
            readings |= {f"hardware/cpu_{name}": cores[name], f"hardware/memory_{name}": memory[name]}
        return readings

    def _processes(self) -> Iterator[tuple[tuple[int, float], str, float, int]]:
        """Yield key, name, seconds of processor time and resident bytes of each process of the run."""
        for process in [self._self, *self._self.children(recursive=True)]:
            with suppress(psutil.Error), process.oneshot():  # one that has just ended
                times, named = process.cpu_times(), _NAMED.fullmatch(process.name())
                name = "driver" if process is self._self else "_".join(named.groups()) if named else "others"
                yield (process.pid, process.create_time()), name, times.user + times.system, process.memory_info().rss

    def _read_machine(self, elapsed: float) -> dict[str, float]:
        busy, network = _busy_seconds(), _network_bytes()
        readings = {
            "hardware/machine_cpu": min((busy - self._busy) / (elapsed * self._processors), 1.0),
            "hardware/machine_memory": psutil.virtual_memory().percent / 100,
        }
        names = ("hardware/network_sent", "hardware/network_received")
        readings |= {name: max(b - a, 0) / elapsed for name, a, b in zip(names, self._network, network, strict=True)}
        self._busy, self._network = busy, network
        return readings

    def _read_energy(self) -> dict[str, float]:
        before, self._energy = self._energy, self._energy_counters()
        if not self._packages or None in before or None in self._energy:
            return {}
        joules = 0.0
        for (_, largest), a, b in zip(self._packages, before, self._energy, strict=True):
            assert a is not None and b is not None
            joules += (b - a if b >= a else b - a + largest) / 1e6  # a counter begins again at 0 after its largest
        return {"hardware/energy_cpu": joules}

    def _read_gpus(self) -> dict[str, float]:
        if self._gpus is None:  # not before, since a short run would wait for the import
            self._gpus = _Gpus()
        return self._gpus.read()

    def _energy_counters(self) -> list[int | None]:
        return [_number(file) for file, _ in self._packages]


class _Gpus:
    """The GPUs that this process may use, by their index in ``CUDA_VISIBLE_DEVICES``; none without NVML."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._nvml: ModuleType | None = None
        with suppress(Exception):  # no package, no driver, no GPU, no permission
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handles = pynvml, list(_visible(pynvml))
        self._joules: list[float | None] = [None] * len(self._handles)  # at the reading before

    def read(self) -> dict[str, float]:
        readings = dict[str, float]()
        for index, handle in enumerate(self._handles):
            assert self._nvml is not None
            with suppress(self._nvml.NVMLError):
                readings[f"hardware/gpu_{index}"] = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            with suppress(self._nvml.NVMLError):
                readings[f"hardware/gpu_memory_{index}"] = self._nvml.nvmlDeviceGetMemoryInfo(handle).used / MIB
            before, after = self._joules[index], self._energy(handle)
            if before is not None and after is not None:
                readings[f"hardware/energy_gpu_{index}"] = after - before
            self._joules[index] = after
        return readings

    def _energy(self, handle: Any) -> float | None:
        assert self._nvml is not None
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
        except self._nvml.NVMLError:  # older than Volta
            return None


def _visible(nvml: ModuleType) -> Iterator[Any]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        yield from map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return
    for name in filter(None, named.split(",")):
        if name.isdecimal():
            yield nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            yield nvml.nvmlDeviceGetHandleByUUID(name)


def _packages(powercap: Path) -> list[tuple[Path, int]]:
    """Return counter and largest value (in microjoules) of each processor package; none unless all can be read."""
    sensors = []
    for place in sorted(powercap.glob("intel-rapl:[0-9]*")):
        if re.fullmatch(r"intel-rapl:\d+", place.name) and _text(place / "name").startswith("package"):
            largest = _number(place / "max_energy_range_uj")
            if largest is None or _number(place / "energy_uj") is None:
                return []
            sensors.append((place / "energy_uj", largest))
    return sensors


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdecimal() else None


def _busy_seconds() -> float:
    """Return the processor time that all cores have spent on work, in seconds."""
    times = psutil.cpu_times()._asdict()
    idle = ("idle", "iowait", "guest", "guest_nice")  # user time contains that of guests
    return float(sum(seconds for name, seconds in times.items() if name not in idle))


def _network_bytes() -> tuple[int, int]:
    """Return the bytes that the machine has sent and received, without those to itself."""
    cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
    return sum(card.bytes_sent for card in cards), sum(card.bytes_recv for card in cards)
