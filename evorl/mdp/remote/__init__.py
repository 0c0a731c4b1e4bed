"""Games in other programs, which connect by the protocol of docs/remote.md.

Start with `evorl.mdp.remote.world`, the config, and `messages`, what is said. `link` sends and receives messages (for
browsers by `websocket`), `offer` reads what a game offers and its rows, `connection` is one game, `server` lets games
in and starts processes, `arena` plays battles and keeps episodes exact.
"""

from evorl.mdp.remote.world import Remote as Remote
