"""Whether a tool can go along, as far as its definition tells."""

from __future__ import annotations

from ratchet.tools.definition import OpenApiBody, Tool, ToolType
from ratchet.tools.openapi import server_of
from ratchet.workflows.exports.carrying import Unfit
from ratchet.workflows.exports.runner.program_tools import PYTHONS
from ratchet.workflows.exports.runner.schemas import unknown_keywords
from ratchet.workflows.exports.runner.web_tools import AUTH_KEYS, AUTH_TYPES
from ratchet.workflows.exports.target import Target


def check_tool(tool: Tool, target: Target) -> None:
    """Raises `Unfit` with the reason."""
    for schema in (tool.input_schema, tool.output_schema):
        if unknown := unknown_keywords(schema):
            raise Unfit(f"has a schema with {', '.join(sorted(unknown))}, which nobody can check there")
    if tool.type is ToolType.MCP:
        raise Unfit("belongs to an MCP server, which an export cannot bring along")
    if tool.openapi is not None:
        _check_service(tool.openapi)
    if target is Target.EMBEDDED:
        _check_embedded(tool)


def _check_embedded(tool: Tool) -> None:
    if tool.requirements:
        raise Unfit("needs packages, and there is only the standard library")
    if tool.network:
        raise Unfit("needs the network, and there is none")
    if tool.executable is not None and tool.executable.command not in PYTHONS:
        raise Unfit("is a program of this machine, and there only Python is sure to be found")


def _check_service(body: OpenApiBody) -> None:
    if body.spec is None and body.spec_url is not None:
        raise Unfit("has its description somewhere else; save it and name the file in spec_path")
    if body.base_url is None and server_of(body.spec) is None:
        raise Unfit("does not say where its service is; set openapi.base_url")
    kind = body.auth.get("type", "bearer" if body.auth else "none")
    known = set(body.auth) <= AUTH_KEYS and kind in AUTH_TYPES
    if not known or (kind != "none" and "variable" not in body.auth):
        raise Unfit(f"has an openapi.auth that an export does not know; use {', '.join(sorted(AUTH_KEYS))}")
