"""Games with the plugin of Godot RL Agents, which speak its own protocol.

The game waits for evorl's messages, all of its agents step together, and each begins its next episode by itself.

`game` is one process of a game and what it offers, `arena` its agents as slots.
"""
