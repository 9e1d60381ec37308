"""Running foreign code: a fresh process tree with its own view of the machine, limits, and honest usage."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.sandbox._run import Running, run, start, surroundings, wrapped
    from ratchet.sandbox.nursery import close
    from ratchet.sandbox.policy import (
        COMMAND_FLOOR,
        NODE_FLOOR,
        Bounds,
        Broken,
        CannotStart,
        Finished,
        IsolationRefused,
        Layer,
        Layers,
        Node,
        Policy,
        Stopped,
        Warm,
        command_layers,
        granted,
    )
else:
    __getattr__ = on_demand(__name__)
