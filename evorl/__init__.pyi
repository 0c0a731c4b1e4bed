from evorl.api.experiments import experiment as experiment
from evorl.api.policy import Policy as Policy
from evorl.api.runs import RunResult as RunResult
from evorl.api.runs import load as load
from evorl.api.runs import resume as resume
from evorl.api.runs import run as run
from evorl.api.runs import sweep as sweep

__version__: str
