"""The `llm` engine: chat, streaming and structured answers of plain model endpoints. It edits no files."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.engines.llm.engine import LlmEngine, open_llm
else:
    __getattr__ = on_demand(__name__)
