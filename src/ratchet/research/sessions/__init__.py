"""The sessions of specialists: prompts, tools, and the context that tools are bound to."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.sessions.context import SessionContext
    from ratchet.research.sessions.inputs import Idea, hypothesis_of
    from ratchet.research.sessions.prompt import Beside, shared_prompt, system_prompt, user_prompt
    from ratchet.research.sessions.tools import tools_for
else:
    __getattr__ = on_demand(__name__)
