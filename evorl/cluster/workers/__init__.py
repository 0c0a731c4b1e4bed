"""Groups whose members run in worker processes.

group.py implements `Group` for the driver; pool.py assigns calls to workers, detects failures and replaces workers;
handle.py is the driver's record of one worker, and worker.py the worker process itself. launcher.py is the interface
to what starts the processes: see evorl.cluster.processes and evorl.cluster.ray. Start with group.py.
"""
