"""Clusters: where the members of a run execute.

core.py defines the interface (`Cluster`, `Group`, `Future`) and local.py the default, everything in one process.
processes/ and ray/ start worker processes, on this machine or where Ray places them. workers/ runs groups in these
processes, and transport/ carries their messages. Nothing here depends on learning or evolution; start with core.py.
"""
