"""A person at a side of a game: what keys mean, the game in real time, and the page that shows it.

Above: ``evorl.play``. Below: worlds (`evorl.mdp`) and policies (`evorl.rl`).
"""
