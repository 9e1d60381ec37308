"""A scripted model server: drives real coding agents and clients through answers that are written down."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.modelserver.script import Script, ScriptFile, Seen, read_script
    from ratchet.modelserver.server import Exchange, ModelServer
    from ratchet.modelserver.turn import (
        ScriptedCall,
        Tokens,
        Turn,
        answer,
        call,
        call_freely,
        call_mcp,
        cut,
        fail,
        hang,
        say,
    )
else:
    __getattr__ = on_demand(__name__)
