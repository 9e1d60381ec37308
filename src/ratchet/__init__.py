"""Ratchet runs coding agents in a loop that only moves forward."""

__version__ = "0.1.0"
__all__ = ["RunNotCompleted", "Workflow", "ask", "prompt", "step", "tool", "when", "workflow"]


def __getattr__(name: str) -> object:
    # What workflows are written with. Whoever imports something else of Ratchet does not pay for it; its types are in
    # `__init__.pyi`.
    if name not in __all__:
        raise AttributeError(f"module 'ratchet' has no attribute {name!r}")
    from importlib import import_module

    above = name in ("RunNotCompleted", "Workflow", "workflow")
    found: object = getattr(import_module(f"ratchet.workflows.{'python' if above else 'authoring'}"), name)
    return found
