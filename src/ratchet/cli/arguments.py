"""Arguments and options that several commands share."""

from __future__ import annotations

import click

agent_argument = click.argument("name", metavar="AGENT", help="The name of an agent.")
research_argument = click.argument(
    "wanted", metavar="RUN", help="The number or the name of a run; of several the newest."
)
source_argument = click.argument(
    "source", metavar="FILE|WORKFLOW", help="A file of YAML or JSON, or the name of a saved workflow."
)
tool_argument = click.argument(
    "tool",
    metavar="TOOL",
    help="The name of a tool; WORKFLOW/TOOL for one that a workflow brings with it, or its file beside the workflow.",
)
simulated_option = click.option(
    "--simulated", is_flag=True, help="Allow recorded answers; the run is marked as a simulation."
)
detach_option = click.option(
    "--detach", is_flag=True, help="Leave the work to `ratchet worker` or `ratchet serve`."
)
