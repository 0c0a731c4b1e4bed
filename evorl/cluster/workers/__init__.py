"""Groups whose members run in worker processes.

group.py implements `Group` for the driver. pool.py starts, ends and replaces workers; sender.py sends them calls, and
inbox.py receives their messages. handle.py is the driver's record of one worker, and lifecycle.py the table of its
states (see docs/workers.md). worker.py is the worker process itself. launcher.py is the interface to what starts the
processes: see evorl.cluster.processes and evorl.cluster.ray. Start with group.py.
"""
