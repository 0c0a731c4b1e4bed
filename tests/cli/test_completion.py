"""Completion in a shell: the script that installs it, and the words that it asks for."""

from __future__ import annotations

import sys

import pytest

from evorl.__main__ import main as evorl
from evorl.run import main

SPELLINGS = (["-sc"], ["--shell-completion"])


@pytest.mark.parametrize("option", SPELLINGS)
@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_script_completes_evorl(shell: str, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Zsh takes that of bash."""
    before = sys.argv[0]
    assert main([*option, f"install={shell}"]) == 0
    out, err = capsys.readouterr()
    assert (
        f"-sc query={'fish' if shell == 'fish' else 'bash'}" in out
        and "evorl" in out
        and err == ""
        and sys.argv[0] == before
    )
    assert main([*option, f"uninstall={shell}"]) == 0


def test_the_command_takes_the_option_that_the_script_uses(capsys: pytest.CaptureFixture[str]) -> None:
    from evorl.cli import completion

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evorl.util.streams._stream", lambda number, old: old)  # the test keeps its own
        patch.setattr("signal.signal", lambda *_: None)
        assert evorl(["-sc", "install=bash"]) == 0
    assert "complete -o nospace -o default -F hydra_bash_completion evorl" in capsys.readouterr().out
    assert completion.COMMANDS == ("run", "evaluate", "report", "export", "play", "reproduce", "zoo", "new")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("evorl run mdp=cart", {"mdp=cartpole"}),
        ("evorl run mdp=lunar", {"mdp=lunarlander", "mdp=lunarlandercontinuous"}),
        ("evorl ", {"run", "evaluate", "report", "export", "play", "reproduce", "zoo", "new"}),
        ("evorl ru", {"run", "evaluate", "report", "export", "play", "reproduce", "zoo", "new"}),  # the shell chooses
        ("evorl evaluate run=", set()),
    ],
)
def test_words_that_fit(
    line: str, found: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    assert main(["-sc", "query=bash"]) == 0
    assert {*capsys.readouterr().out.split()} == found


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "--shell-completion: takes one of install=SHELL, uninstall=SHELL"),
        (["instal=bash"], "--shell-completion: takes one of install=SHELL, uninstall=SHELL; did you mean install?"),
        (["install=bash", "mdp=pong"], "--shell-completion: takes one of install=SHELL, uninstall=SHELL"),
        (["install=bsh"], "install: 'bsh' is none of bash, fish, zsh; did you mean bash?"),
        (["query=bash"], "query: is for the shell, which gives the line in COMP_LINE; type install=bash"),
    ],
)
def test_what_is_refused(
    words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COMP_LINE", raising=False)
    assert main(["-sc", *words]) == 2
    assert capsys.readouterr().err == f"evorl: {line}\n"
