"""TODO."""

from evorl.cluster.processes.cluster import Processes as Processes
