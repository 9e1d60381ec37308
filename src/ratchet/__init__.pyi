from ratchet.workflows.authoring import ask, prompt, step, tool, when
from ratchet.workflows.python import RunNotCompleted, Workflow, workflow

__version__: str
__all__ = ["RunNotCompleted", "Workflow", "ask", "prompt", "step", "tool", "when", "workflow"]
