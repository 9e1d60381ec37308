"""Agents that are described here, ready to use. A table of the same name in the settings replaces one."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.config.engine_settings import CommandSettings

# Each of them takes its key from the variable of the maker whose model it is told to use.
_KEYS = (
    "ANTHROPIC_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
)

_REFUSALS = (
    "rate_limited=(?i)rate.?limit|too many requests|\\b429\\b|resource_exhausted",
    "no_access=(?i)unauthorized|invalid.{0,10}api.?key|authentication|permission.?denied|\\b40[13]\\b",
    "no_access=(?i)insufficient_quota|quota exceeded|model_not_found",
    "refused=(?i)context.{0,10}(length|window)",
)

READY: Mapping[str, CommandSettings] = {
    "opencode": CommandSettings(
        argv=("opencode", "run", "--format=json", "--auto", "--model={model}"),
        environment=_KEYS,
        variables=("OPENCODE_DISABLE_AUTOUPDATE=true", "OPENCODE_DISABLE_LSP_DOWNLOAD=true"),
        answer="jsonl:part.text",
        error_at="error",
        # The tokens in are told without those that were read from or written to a cache.
        input_tokens_at="part.tokens.input+part.tokens.cache.read+part.tokens.cache.write",
        cached_tokens_at="part.tokens.cache.read",
        output_tokens_at="part.tokens.output+part.tokens.reasoning",
        cost_usd_at="part.cost",
        usage_counts="sum",
        patterns=_REFUSALS,
        version=("--version",),
        install="npm install -g opencode-ai",
    ),
    "gemini": CommandSettings(
        argv=("gemini", "--output-format=json", "--approval-mode=yolo", "--model={model}"),
        environment=(
            "GEMINI_API_KEY",
            "GOOGLE_API_KEY",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_GENAI_USE_VERTEXAI",
            "GOOGLE_GEMINI_BASE_URL",
        ),
        # It refuses to start without a person in a directory that it was not told to trust.
        variables=("GEMINI_CLI_TRUST_WORKSPACE=true",),
        answer="json:response",
        error_at="error.message",
        input_tokens_at="stats.models.*.tokens.prompt",
        cached_tokens_at="stats.models.*.tokens.cached",
        output_tokens_at="stats.models.*.tokens.candidates+stats.models.*.tokens.thoughts",
        exit_codes=("41=missing", "42=refused", "52=refused", "53=budget"),
        patterns=_REFUSALS,
        version=("--version",),
        install="npm install -g @google/gemini-cli",
    ),
    "aider": CommandSettings(
        argv=(
            "aider",
            "--message-file={prompt_file}",
            "--read={system_file}",
            "--model={model}",
            "--yes-always",
            "--no-auto-commits",
            "--no-dirty-commits",
            "--no-gitignore",
            "--no-check-update",
            "--no-show-release-notes",
            "--no-analytics",
            "--no-detect-urls",
            "--no-fancy-input",
            "--no-pretty",
            "--no-stream",
            "--chat-history-file={home}/chat.md",
            "--input-history-file={home}/input.txt",
        ),
        environment=_KEYS,
        # It ends with 0 also when its model was never reached.
        error_pattern=r"litellm\.\w*(Error|Exception)",
        usage_pattern=r"Tokens: (?P<input>[\d.,]+[kM]?) sent, (?:[\d.,]+[kM]? cache write, )?"
        r"(?:(?P<cached>[\d.,]+[kM]?) cache hit, )?(?P<output>[\d.,]+[kM]?) received\."
        r"(?: Cost: \$(?P<cost>[\d.]+) message)?",
        usage_counts="sum",
        patterns=("no_access=AuthenticationError", "refused=ContextWindowExceeded", *_REFUSALS),
        version=("--version",),
        install="pip install aider-chat",
    ),
    "codemachine": CommandSettings(
        argv=("codemachine", "start", "--spec={prompt_file}"),
        environment=_KEYS,
        variables=("CODEMACHINE_PLAIN_LOGS=1",),
        error_pattern="Workflow failed",
        patterns=_REFUSALS,
        version=("--version",),
        install="npm install -g codemachine",
    ),
}
