"""The whole environment of a session. Nothing else of the process around it gets in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ratchet.config.engine_settings import Claude
from ratchet.engines.claude.conversations import PROJECT
from ratchet.engines.claude.launch import KEY_DESCRIPTOR
from ratchet.engines.proxies import past_the_proxy

# What any program needs here to find others, to speak the right language and to reach the endpoint.
_PASSED = (
    *("PATH", "LANG", "LC_ALL", "TZ"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
_KEY_DESCRIPTORS = {
    "api_key": "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    "oauth_token": "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
}
_ALWAYS = {
    # Only the endpoint is spoken to: no telemetry, no updates, no plugins.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # A broken stream is a failure of that request, not the beginning of another kind of request.
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    # Tools are listed from the start; by default the model would have to search for those of a server.
    "ENABLE_TOOL_SEARCH": "false",
    # Nothing is carried from one session to another, and nothing runs beside it.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # What the SDK would have set, had its environment been passed on.
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
    "CLAUDE_CODE_PROJECT_DIR_NAME": PROJECT,
    "SHELL": "/bin/bash",
}


def make_environment(
    around: Mapping[str, str], settings: Claude, *, home: Path, sdk_version: str
) -> dict[str, str]:
    temporary = str(home / "tmp")
    passed = (*_PASSED, *settings.environment)
    environment = {name: around[name] for name in passed if name in around} | _ALWAYS | past_the_proxy(around)
    environment |= {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home),
        "TMPDIR": temporary,
        "CLAUDE_CODE_TMPDIR": temporary,
        "CLAUDE_AGENT_SDK_VERSION": sdk_version,
        "CLAUDE_CODE_MAX_RETRIES": str(settings.retries),
        _KEY_DESCRIPTORS[settings.key_kind]: str(KEY_DESCRIPTOR),
    }
    if settings.base_url is not None:
        environment["ANTHROPIC_BASE_URL"] = settings.base_url
    return environment
