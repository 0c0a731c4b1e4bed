"""``cluster=processes``: workers as processes of this machine.

Here: the fork servers that start and supervise workers, orphans, process ids, out-of-memory kills.
Not here: messages (`evorl.cluster.transport`), calls and replacement of workers (`evorl.cluster.workers`).
Start reading: `evorl.cluster.processes.launcher`, then `evorl.cluster.processes.supervisor`.
"""

from evorl.cluster.processes.cluster import Processes as Processes
