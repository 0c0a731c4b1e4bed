from pathlib import Path

import pytest

from evorl.analysis.hardware import hardware_rows
from evorl.analysis.report import compose
from evorl.analysis.runs import read_run
from evorl.analysis.sources import Choices, Sources
from tests.analysis.test_runs import line, make_run


def reading(step: int, **numbers: float) -> str:
    return line(step, step / 10, **{f"hardware__{name}": x for name, x in numbers.items()})


def test_processes_of_a_run_with_means_maxima_and_sums(tmp_path: Path) -> None:
    lines = [
        line(0, 0.0, train__return=1.0),
        reading(10, cpu=3.0, cpu_others=0.5, cpu_worker_10=0.5, cpu_worker_2=1.0, cpu_driver=1.0, memory=70.0,
                memory_others=5.0, memory_worker_10=5.0, memory_worker_2=20.0, memory_driver=40.0,
                energy_cpu=1500.0, energy_gpu_0=500.0),
        reading(20, cpu=1.0, cpu_driver=0.5, cpu_worker_2=0.5, memory=60.0, memory_driver=50.0, memory_worker_2=10.0,
                energy_cpu=1000.0),
    ]  # fmt: skip
    rows = hardware_rows([read_run(make_run(tmp_path / "a", lines)), read_run(make_run(tmp_path / "b", lines[:1]))])
    assert {row["run"] for row in rows} == {str(tmp_path / "a")}
    assert [list(row.values())[1:] for row in rows] == [
        ["all", 2.0, 70.0, 3.0], ["driver", 0.75, 50.0, None], ["worker_2", 0.75, 20.0, None],
        ["worker_10", 0.5, 5.0, None], ["others", 0.5, 5.0, None],
    ]  # fmt: skip


def test_no_energy_where_it_could_not_be_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", [reading(10, cpu=3.0, memory=70.0, cpu_driver=3.0, memory_driver=70.0)])
    assert [row["energy (kJ)"] for row in hardware_rows([read_run(run)])] == [None, None]


@pytest.mark.parametrize("readings", [True, False])
def test_in_the_report(tmp_path: Path, readings: bool) -> None:
    numbers = {"cpu": 3.0, "memory": 70.0, "cpu_driver": 3.0, "memory_driver": 70.0} if readings else {}
    lines = [line(k, k / 10, train__return=1.0) for k in range(5)] + [reading(10 + k, **numbers) for k in range(5)]
    content = compose(Sources(runs=[read_run(make_run(tmp_path / "a", lines))]), Choices())
    assert ("hardware.csv" in content) == readings == (b">Hardware<" in content["index.html"])
    assert (b"driver" in content["index.html"]) == readings
