"""How commands are told which project, protocol or step they are about."""

from __future__ import annotations

import click

from ratchet.cli.operation import Text

protocol_argument = click.argument(
    "wanted", metavar="PROTOCOL", help="Its number, or its name such as 0007-add-login."
)
step_argument = click.argument(
    "wanted", metavar="STEP", help="Its number, or PROTOCOL/NN: the protocol and the place in it."
)
project_argument = click.argument("project", metavar="PROJECT", help="Its number or its name.")
project_or_here_argument = click.argument(
    "project", metavar="[PROJECT]", required=False, help="Its number or its name; else the repository here."
)
within_option = click.option(
    "--project", metavar="PROJECT", help="The project it belongs to, where its name alone is not enough."
)
detach_option = click.option(
    "--detach", is_flag=True, help="Leave the work to `ratchet worker` or `ratchet serve`."
)
no_wait_option = click.option("--no-wait", is_flag=True, help="Do not wait for CI.")
ci_files_option = click.option(
    "--ci-files", is_flag=True, help="Write CI scripts and a CI file where the repository lacks them."
)
by_option = click.option(
    "--by", metavar="NAME", type=Text(1, 200), help="Who says so; the name of the user if not given."
)
