"""Small helpers without dependencies inside evorl: each file is self-contained or imports only its neighbours.

Here: keyed random numbers, schedules, typed configs, errors for bad requests, atomic files.
Not here: anything that knows worlds, learners or runs.
Start reading: `evorl.util.seed`.
"""
