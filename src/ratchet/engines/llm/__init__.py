"""The `llm` engine: chat, streaming and structured answers of plain model endpoints. It edits no files."""

from ratchet.engines.llm.engine import LlmEngine, open_llm

__all__ = ["LlmEngine", "open_llm"]
