"""The `claude` engine: the Claude Agent SDK and the CLI it drives, each session in a sandbox and a home of its own."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.engines.claude.engine import ClaudeEngine, open_claude
else:
    __getattr__ = on_demand(__name__)
