"""The command that lists trained policies. Commands that take a policy take one as ``zoo/NAME``, as a run directory.

    python -m evorl.zoo                 all of them
    python -m evorl.zoo suite/ppo_pong  one: its numbers, curves, settings, and the command that makes it again

The list has the return of each policy, and the interquartile mean of all runs of its row where a table has one. From
Python, ``evorl.load("zoo/ppo_pong")`` loads one, as does ``"zoo/pong_ppo"``.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["zoo", *sys.argv[1:]]))

from collections.abc import Sequence

from evorl.analysis.terminal_tables import text_lines
from evorl.cli import config
from evorl.reproduction.kept_policies import KeptPolicy, find, kept_policies
from evorl.util import command
from evorl.util.errors import BadRequest
from evorl.util.numbers import format_number
from evorl.util.text import say


def main(words: Sequence[str] | None = None) -> int:
    """Run ``evorl.zoo`` with these arguments and return its exit code."""
    return config.command_line(zoo, words)


def zoo(words: Sequence[str]) -> None:
    """List the policies, or describe one. Raises `BadRequest`."""
    if {"-h", "--help"} & {*words}:
        print((__doc__ or "").strip())
    elif len(words) > 1:
        raise BadRequest(f"one policy at a time: {words[0]} or {words[1]}")
    elif words:
        _describe(find(words[0].removeprefix("zoo/")))
    else:
        kept = kept_policies()
        print("\n".join(text_lines([_row(policy) for policy in kept])))
        say(f"{len(kept)} policies; python -m evorl.zoo NAME describes one")


def _row(policy: KeptPolicy) -> dict[str, str]:
    return {
        "policy": policy.name, "world": policy.world, "learner": policy.learner, "return": _return(policy),
        "IQM of all runs": policy.score() or "-", "steps": format_number(policy.evaluation["step"]),
    }  # fmt: skip


def _return(policy: KeptPolicy) -> str:
    mean, std = (format_number(policy.evaluation[f"return_{of}"]) for of in ("mean", "std"))
    return f"{mean} ± {std}"


def _describe(policy: KeptPolicy) -> None:
    evaluation = policy.evaluation
    steps, seed = format_number(evaluation["step"]), evaluation["seed"]
    say(f"{policy.name}: {policy.learner} on {policy.world}, {steps} steps, seed {seed}")
    say(f"return     {_return(policy)} over {evaluation['episodes']} episodes")
    if score := policy.score():
        say(f"all runs   {score}: the interquartile mean at the end, with its 95 % interval")
    say(f"curves     {policy.page}")
    say(f"film       {command.evaluate(f'run=zoo/{policy.name}', 'video=true')}")
    say(f"settings   {policy.directory / '.hydra' / 'config.yaml'}")
    say(f"checksum   {policy.digest}")
    say(f"directory  {policy.directory}")
    say(f"made by    {command.line('reproduce', policy.table)}")
