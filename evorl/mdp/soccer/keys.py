"""The keys with which people play soccer."""

from __future__ import annotations

from evorl.mdp.labels import HIGHEST, LOWEST, STILL, Binding
from evorl.mdp.soccer.players import NOTHING, PASS, SHOT, TACKLE

WAYS = ("ahead", "ahead and left", "left", "back and left", "back", "back and right", "right", "ahead and right")
MOVES = ("stand", *WAYS)
BALL = ("nothing", "pass", "shot", "tackle")
CONTINUOUS = ("run ahead", "run left", "kick")
RINGS = (("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"), ("d", "w", "a", "s"))
"""Of each player the keys to the right, up, left and down on the screen."""
LETTERS = (("j", "k", "l"), ("f", "g", "h"))
"""Of each player the keys of pass, shot and tackle."""


def action_names(players: int, continuous: bool) -> tuple[tuple[str, ...], ...]:
    """Names of the components of an action for so many players, or of the choices of each component."""
    if not continuous:
        return (MOVES, BALL) * players
    return (tuple(name + _whose(player, players) for player in range(players) for name in CONTINUOUS),)


def _whose(player: int, players: int) -> str:
    return f", player {player + 1}" if players > 1 else ""


def bindings(players: int, team: int, continuous: bool) -> tuple[Binding, ...]:
    """The keys of a person who decides for so many players of a team; only the first two of them move."""
    bound = list[Binding]()
    for player in range(players):
        ring, letters = (RINGS[player], LETTERS[player]) if player < len(RINGS) else ((), ())
        whose = _whose(player, players)
        make, components = (_continuous, 3) if continuous else (_choices, 2)
        bound += [
            binding._replace(component=binding.component + player * components, label=binding.label + whose)
            for binding in make(ring[2 * team :] + ring[: 2 * team], letters)
        ]
    return tuple(bound)


def _choices(ring: tuple[str, ...], letters: tuple[str, ...]) -> list[Binding]:
    """``ring``: keys to the front, left, back and right of the player's team, which sees the field from its own end."""
    straight = [Binding((key,), 1 + 2 * k, MOVES[1 + 2 * k]) for k, key in enumerate(ring)]
    between = [Binding((key, ring[(k + 1) % 4]), 2 + 2 * k, MOVES[2 + 2 * k]) for k, key in enumerate(ring)]
    ball = [Binding((key,), choice, BALL[choice], 1) for choice, key in enumerate(letters, PASS)]
    return [Binding((), 0, MOVES[0]), Binding((), NOTHING, BALL[NOTHING], 1), *straight, *between, *ball]


def _continuous(ring: tuple[str, ...], letters: tuple[str, ...]) -> list[Binding]:
    ways = (("ahead", HIGHEST, 0), ("left", HIGHEST, 1), ("back", LOWEST, 0), ("right", LOWEST, 1))
    running = [Binding((key,), choice, way, at) for key, (way, choice, at) in zip(ring, ways, strict=False)]
    ball = [Binding((key,), choice, BALL[which], 2) for key, choice, which in zip(
        letters[1:], (HIGHEST, LOWEST), (SHOT, TACKLE), strict=False)]  # fmt: skip
    return [*(Binding((), STILL, name, at) for at, name in enumerate(CONTINUOUS)), *running, *ball]
