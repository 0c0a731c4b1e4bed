"""Hydra's own tests of launchers, on Ray's launcher as conf/hydra/launcher/ray.yaml sets it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT
from hydra import version

plugin = pytest.importorskip("hydra_plugins.hydra_ray_launcher._config")  # it enters itself in Hydra's store

from hydra.extra.pytest_plugin import hydra_restore_singletons, hydra_sweep_runner  # noqa: E402, F401
from hydra.test_utils.launcher_common_tests import (  # noqa: E402
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)


def shipped() -> list[str]:
    """Every key of our file as a word, for the configs of Hydra's tests; one core is enough."""
    data: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "hydra" / "launcher" / "ray.yaml").read_text())["ray"]
    leaves = {f"{part}.{key}": value for part, keys in data.items() for key, value in keys.items()}
    leaves |= {"init.num_cpus": 1}
    words = {key: "null" if value is None else str(value).lower() for key, value in leaves.items()}
    return [f"++hydra.launcher.ray.{key}={word}" for key, word in words.items()]


@pytest.fixture(scope="module", autouse=True)
def ray_of_ones_own() -> Iterator[None]:
    """Started by the first test, kept for the others; it lives in a folder whose name is short enough for sockets."""
    import ray

    with tempfile.TemporaryDirectory(prefix="evorl-test-", dir="/tmp") as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", place)
        patch.setenv("PYTHONPATH", os.pathsep.join([*sys.path]))
        # Hydra's tests count on its defaults, where a test before them has set ours
        patch.setattr(version.VersionBase.instance(), "version_base", version._UNSPECIFIED_)
        yield
        ray.shutdown()


@pytest.mark.fault
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("launcher_name", "overrides"), [("ray", shipped())])
class TestRayLauncher(LauncherTestSuite):
    pass


@pytest.mark.fault
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("launcher_name", "overrides"), [("ray", ["hydra.sweeper.max_batch_size=2", *shipped()])])
class TestRayLauncherInBatches(BatchedSweeperTestSuite):
    pass


@pytest.mark.fault
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=ray", *shipped()])])
class TestRayLauncherInAProgram(IntegrationTestSuite):
    pass


def test_our_file_names_what_the_plugin_has() -> None:
    data = yaml.safe_load(Path(ROOT / "conf" / "hydra" / "launcher" / "ray.yaml").read_text())
    assert data["_target_"] == plugin.RayLauncherConf._target_
    assert {*data["ray"]} == {*plugin.RayConf.__dataclass_fields__}
