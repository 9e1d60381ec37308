"""`ratchet completion`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ratchet.cli.command import command
from ratchet.cli.program import COMPLETION_VARIABLE, NAME, root


@command(
    examples=[
        'eval "$(ratchet completion bash)"',
        "ratchet completion zsh > ~/.zfunc/_ratchet",
        "ratchet completion fish > ~/.config/fish/completions/ratchet.fish",
    ]
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell that reads the script.")
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    Put `eval "$(ratchet completion bash)"` into ~/.bashrc, the same with zsh into ~/.zshrc, or
    `ratchet completion fish | source` into fish's config.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    print(kind(root, {}, NAME, COMPLETION_VARIABLE).source())
