"""Completion of a line that is being typed. It answers at a key press, so it imports no command and nothing heavy."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.cli.completing.shapes import answer
else:
    __getattr__ = on_demand(__name__)
