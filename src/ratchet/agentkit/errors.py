"""What can go wrong in an agent, as types. A message says what was wrong; `hint`, where there is one, what to do."""

from __future__ import annotations


class AgentKitError(Exception):
    """The root of the kit's own errors. As text it is its message and its hint: a caller of a tool sees no more."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}; {hint}")
        self.message = message
        self.hint = hint


class Misused(AgentKitError):
    """The kit was called with something that cannot be meant."""


class StateInvalid(AgentKitError):
    """A state that may not be stored. `path` says where in it the fault lies. Nothing was written."""

    def __init__(self, message: str, *, path: str = "state", hint: str | None = None) -> None:
        super().__init__(f"{path} {message}", hint=hint)
        self.path = path


class SchemaInvalid(AgentKitError):
    """The schema of the state is absent or is no JSON Schema, so no state can be checked."""


class StateMissing(AgentKitError):
    """There is no state yet, or its file was removed."""


class StateExists(AgentKitError):
    """There is a state already, another one than the one to begin with."""


class StateDamaged(AgentKitError):
    """A file of the state cannot be used as it lies there."""


class StateBusy(AgentKitError):
    """The lock cannot be had: this thread has it already, or somebody else keeps it too long."""


class StateMoved(AgentKitError):
    """Another version of the agent has taken the state over: a change made here would be lost. Nothing was written."""


class NoSuchChange(AgentKitError):
    """The history has no change of that number."""


class ArchitectUnreachable(AgentKitError):
    """The Architect did not answer. `taken` is false where it is certain that nothing reached it."""

    def __init__(self, message: str, *, hint: str | None = None, taken: bool | None = False) -> None:
        super().__init__(message, hint=hint)
        self.taken = taken


class AgentUnreachable(AgentKitError):
    """Another agent did not answer."""


class ToolFailed(AgentKitError):
    """A tool answered that it failed; the message is its own."""

    def __init__(self, message: str, *, tool: str) -> None:
        super().__init__(message)
        self.tool = tool


class AnswerInvalid(AgentKitError):
    """An answer that is not what was asked for."""
