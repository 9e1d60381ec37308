"""The numbers that commands take."""

from __future__ import annotations

import click

# The largest that both databases can hold.
_LARGEST = 2**63 - 1

ID = click.IntRange(1, _LARGEST)
COUNT = click.IntRange(1, 1_000_000)
