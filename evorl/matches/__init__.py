"""Games between policies: who plays whom, the games, and what they say of the players.

Above: ``evorl.evaluate``. Below: runs that are read as data (``evorl.jobs``), figures (``evorl.analysis``).
"""
