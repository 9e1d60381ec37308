"""The coding agents on this machine."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial

from ratchet.doctor.check import Check
from ratchet.doctor.command import ask
from ratchet.doctor.run import run_all

VERSION_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Engine:
    command: str
    install: str


KNOWN = (
    Engine("codex", "npm install -g @openai/codex"),
    Engine("claude", "npm install -g @anthropic-ai/claude-code"),
    Engine("opencode", "npm install -g opencode-ai"),
    Engine("gemini", "npm install -g @google/gemini-cli"),
    Engine("aider", "pip install aider-chat"),
    Engine("codemachine", "npm install -g codemachine"),
    Engine("ollama", "install the package ollama with the package manager of your system"),
)


def engines(path: str | None = None) -> list[Check]:
    """Every known engine on `path` (by default the PATH), with its version."""
    return run_all((partial(_engine, each, path) for each in KNOWN), seconds=2 * VERSION_SECONDS)


def _engine(engine: Engine, path: str | None) -> list[Check]:
    name = f"engine {engine.command}"
    program = shutil.which(engine.command, path=path)
    if program is None:
        return [Check(name, "warn", "not found on the PATH", engine.install)]
    again = f"reinstall it: {engine.install}"
    try:
        answer = ask(program, "--version", seconds=VERSION_SECONDS)
    except OSError as error:
        return [Check(name, "warn", f"{program} cannot be run: {error.strerror}", again)]
    if answer.code is None:
        return [Check(name, "warn", f"{program} --version gave no end within {VERSION_SECONDS:g} s", again)]
    if answer.code != 0:
        detail = f"{program} --version ended with {answer.code}: {answer.first_line}"
        return [Check(name, "warn", detail, again)]
    return [Check(name, "ok", f"{answer.first_line or 'no version told'} at {program}")]
