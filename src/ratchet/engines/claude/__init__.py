"""The `claude` engine: the Claude Agent SDK and the CLI it drives, each session in a sandbox and a home of its own."""

from ratchet.engines.claude.engine import ClaudeEngine, open_claude

__all__ = ["ClaudeEngine", "open_claude"]
