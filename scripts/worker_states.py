"""Write the picture and the table of docs/workers.md from `evorl.cluster.workers.lifecycle`: ``make picture``."""

from __future__ import annotations

from pathlib import Path

from evorl.cluster.workers.lifecycle import TRANSITIONS, State

PAGE = Path(__file__).parent.parent / "docs" / "workers.md"
BEGIN, END = "<!-- written by make picture -->\n", "<!-- end -->\n"


def picture() -> str:
    """Return a Mermaid diagram of the transitions that change the state."""
    lines = [
        f"    {state.name} --> {after.name}: {event.name}"
        for event, transition in TRANSITIONS.items()
        for state, after in transition.states.items()
        if after is not state
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {State.STARTING.name}", *lines, "```", ""])


def tables() -> str:
    """Return the states and the events as Markdown tables."""
    states = [f"| `{state.name}` | {state.value} |" for state in State]
    events = []
    for event, (after, unblocks) in TRANSITIONS.items():
        accepting = "all" if {*after} == {*State} else ", ".join(f"`{state.name}`" for state in after)
        events.append(f"| `{event.name}` | {event.value} | {accepting} | {unblocks.value} |")
    heads = (
        ["| state | a worker is in it while |", "|---|---|"],
        [
            "| event | what has happened | states that accept it | whose calls are pushed then |",
            "|---|---|---|---|",
        ],
    )
    return "\n".join([*heads[0], *states, "", *heads[1], *events, ""])


def block() -> str:
    """Return what stands on the page between the marks."""
    return f"{picture()}\n{tables()}"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + block() + END + rest.partition(END)[2])
