"""The table of agents."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ratchet.config.section import Count, Port, Real, Seconds, Section


class Agents(Section):
    engine: str | None = Field(
        None, description="who writes agents; `engines.default`, if not given", examples=["codex"]
    )
    host: str = Field("127.0.0.1", description="where the stable addresses of agents are served")
    port: Port = Field(
        8125, description="and on which port; not set, the next free one if it is taken; 0 takes any"
    )
    network: bool = Field(
        True,
        description="whether agents may use the network; otherwise they reach only Ratchet, and others by it",
    )
    session_seconds: Seconds = Field(
        1800.0, description="how long the Architect's engine may work on a change"
    )
    tries: Count = Field(2, description="sessions for one change, each told why the one before did not pass")
    tests_seconds: Seconds = Field(300.0, description="how long the tests of a version may take")
    start_seconds: Seconds = Field(30.0, description="how long a server may take until it lists its tools")
    call_seconds: Seconds = Field(
        30.0, description="how long a canary call may take, and a migration of the state"
    )
    health_seconds: Seconds = Field(15.0, description="pause between two looks at a running server")
    health_failures: Count = Field(3, description="looks in a row that fail before a server is started again")
    restart_seconds: Seconds = Field(
        0.5, description="pause before a crashed server is started again; doubles"
    )
    restart_cap_seconds: Seconds = Field(30.0, description="the longest such pause")
    crashes: Count = Field(
        4, description="crashes within `crash_seconds` after which a version is quarantined"
    )
    crash_seconds: Seconds = Field(120.0, description="how long a crash is held against a version")
    idle_seconds: Seconds = Field(
        900.0, description="a version that nobody calls for so long is stopped until needed"
    )
    session_idle_seconds: Seconds = Field(
        3600.0, description="a session of a client that is silent for so long is over"
    )
    drain_seconds: Seconds = Field(
        3600.0, description="how long sessions may go on with a version after another took its place"
    )
    memory_mb: Annotated[Count, Field(ge=64)] = Field(1024, description="the most memory of one server")
    cpus: Annotated[Real, Field(ge=0)] = Field(
        0.0, description="how many processors one server may use; 0 is all of them"
    )
    processes: Count = Field(64, description="how many processes and threads one server may have")
    quarantines: Count = Field(20, description="how many changes that did not pass are kept to be looked at")
    feedback_bytes: Count = Field(1_048_576, description="the longest description or feedback that is taken")
    prompt_chars: Annotated[Count, Field(ge=2_000)] = Field(
        60_000,
        description="how much of a description or a feedback is put into the prompt; all of it lies in a file then",
    )
    llm: str = Field("llm", description="the engine that answers when an agent asks a model")
    llm_tokens: Count = Field(1_000_000, description="tokens that one version may use by asking")
