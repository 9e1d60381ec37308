"""What makes real agents and clients use a script: configuration that also keeps them off the network."""

from __future__ import annotations

from collections.abc import Mapping


def codex_config(openai_url: str, *, model: str = "scripted") -> str:
    """A `config.toml` for `$CODEX_HOME`. Any model name does; `gpt-5.5` is offered `apply_patch` as a tool."""
    return f"""\
model = "{model}"
model_provider = "scripted"
allow_login_shell = false
web_search = "disabled"

[model_providers.scripted]
name = "scripted"
base_url = "{openai_url}"
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = 10000

[analytics]
enabled = false

[features]
plugins = false
unbounded_connection_retries = false

[sandbox_workspace_write]
exclude_slash_tmp = true
"""


def claude_environment(anthropic_url: str) -> Mapping[str, str]:
    """Variables for Claude; without them it would retry, and call home."""
    return {
        "ANTHROPIC_BASE_URL": anthropic_url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }


def openai_environment(openai_url: str) -> Mapping[str, str]:
    """Variables for OpenAI's own clients and for what is compatible with them, Ollama's among it."""
    return {"OPENAI_BASE_URL": openai_url, "OPENAI_API_KEY": "scripted", "OLLAMA_BASE_URL": openai_url}
