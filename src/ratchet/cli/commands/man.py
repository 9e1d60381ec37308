"""`ratchet man` and `ratchet completion`"""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ratchet.cli.command import command
from ratchet.cli.output import confirm
from ratchet.cli.program import COMPLETION_VARIABLE, NAME, root
from ratchet.cli.session import CliSession
from ratchet.kernel import Misuse


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


@command(
    examples=[
        "ratchet man runs show | man -l -",
        "ratchet man | man -l -",
        "ratchet man --out ~/.local/share/man/man1",
    ],
    see=["completion"],
)
@click.argument(
    "words",
    metavar="[COMMAND]…",
    nargs=-1,
    help="A command, such as `runs show`; the program if none is named.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the pages of all commands into this directory instead.",
)
def man(session: CliSession, words: tuple[str, ...], out: Path | None) -> None:
    """Print the manual page of a command.

    It says the same as `--help`, in the language that `man` reads. In a directory that `man` looks into, as with --out
    above, `man ratchet-runs-show` finds it.
    """
    # Not before it is asked for: it imports every command.
    from ratchet.cli.reference.files import write_page
    from ratchet.cli.reference.manual import every_command, find_command, manual_page

    if out is None:
        print(manual_page(find_command(root, words)), end="")
        return
    if words:
        raise Misuse(f"--out writes all pages, not only {' '.join(words)!r}", hint="leave one of them out")
    pages = {out / f"{each.name.replace(' ', '-')}.1": manual_page(each) for each in every_command(root)}
    for path, text in pages.items():
        write_page(path, text)
    confirm(
        session,
        {"directory": str(out), "pages": [path.name for path in pages]},
        f"{len(pages)} pages are in {out}.",
    )
