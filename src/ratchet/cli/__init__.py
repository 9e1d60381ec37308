"""The terminal's face: the command `ratchet`."""

import gc

# What a command imports stays to its end: looking for garbage in it again and again took a tenth of each start.
gc.set_threshold(50_000, 20, 20)

from ratchet.cli.program import main, run  # noqa: E402
