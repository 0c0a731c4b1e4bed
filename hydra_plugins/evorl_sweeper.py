"""Where Hydra finds ``hydra/sweeper=evorl``; `evorl.jobs.search_loop` runs the search."""

from __future__ import annotations

from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class EvorlSweeper(Sweeper):
    """Lets an evolver propose the jobs that the launcher runs."""

    config: DictConfig
    hydra_context: HydraContext
    launcher: Launcher

    def __init__(self, **keys: Any) -> None:
        """The keys are read from the config that `setup` brings."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from evorl.jobs.search_loop import run_search

        run_search(self.config, self.hydra_context, self.launcher)
