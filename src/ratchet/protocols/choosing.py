"""Which engine plans, and which engine and model carry out a step: the nearest word counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.config import Settings
from ratchet.ledger.projects import Project
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.ledger.protocols import Protocol


@dataclass(frozen=True, slots=True)
class Choice:
    """Nothing means that the engine's own settings decide."""

    engine: str | None
    model: str | None


def choose(settings: Settings, project: Project, protocol: Protocol, step: ProtocolStep) -> Choice:
    """The step's spec, then the step, then its agent, then the template, then the project, then the settings."""
    spec = _table(step.spec)
    agent = _table(_table(spec.get("metadata")).get("agent"))
    usual = choose_usual(settings, project, protocol)
    return Choice(
        _first(spec.get("engine_id"), step.engine_id, agent.get("engine_id"), usual.engine),
        _first(spec.get("model"), step.model, agent.get("model"), usual.model),
    )


def choose_usual(settings: Settings, project: Project | None, protocol: Protocol | None) -> Choice:
    """As `choose`, for a step that names nothing itself."""
    defaults = _defaults(protocol)
    engine = _first(defaults.get("execute"), settings.protocols.engine)
    models = _table(project and project.default_models)
    return Choice(
        engine, _first(defaults.get("executeModel"), models.get("exec"), settings.protocols.models.exec)
    )


def choose_planner(settings: Settings, protocol: Protocol) -> str | None:
    """The template, then the settings."""
    return _first(_defaults(protocol).get("plan"), settings.protocols.planner)


def _defaults(protocol: Protocol | None) -> Mapping[str, Any]:
    template = _table(_table(protocol and protocol.template_config).get("template"))
    return _table(template.get("engineDefaults"))


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first(*values: Any) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)
