"""What an agent is written with: its two servers, its state, its log, and the ways to the Architect and to others."""

from ratchet.agentkit.architect import ask, send_to_architect
from ratchet.agentkit.client import Agent, AgentTool, agent, call_agent
from ratchet.agentkit.database import Change
from ratchet.agentkit.errors import (
    AgentKitError,
    AgentUnreachable,
    AnswerInvalid,
    ArchitectUnreachable,
    Misused,
    NoSuchChange,
    SchemaInvalid,
    StateBusy,
    StateDamaged,
    StateExists,
    StateInvalid,
    StateMissing,
    StateMoved,
    ToolFailed,
)
from ratchet.agentkit.logs import Surroundings, log, surroundings
from ratchet.agentkit.server import Runner, Tuner
from ratchet.agentkit.store import StateStore, state

__all__ = [
    "Agent",
    "AgentKitError",
    "AgentTool",
    "AgentUnreachable",
    "AnswerInvalid",
    "ArchitectUnreachable",
    "Change",
    "Misused",
    "NoSuchChange",
    "Runner",
    "SchemaInvalid",
    "StateBusy",
    "StateDamaged",
    "StateExists",
    "StateInvalid",
    "StateMissing",
    "StateMoved",
    "StateStore",
    "Surroundings",
    "ToolFailed",
    "Tuner",
    "agent",
    "ask",
    "call_agent",
    "log",
    "send_to_architect",
    "state",
    "surroundings",
]
