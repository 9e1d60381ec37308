"""Agents: MCP services that an Architect creates, and rewrites while they serve, from feedback."""
