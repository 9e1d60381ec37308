"""The tables of workflows and of their tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ratchet.config.section import Count, Dollars, Real, Seconds, Section


class Evolution(Section):
    auto: bool = Field(
        False, description="whether a tool that became worse is rewritten by itself, after a run that used it"
    )
    engine: str | None = Field(
        None, description="who rewrites a tool; `engines.default`, if not given", examples=["codex"]
    )
    min_runs: Count = Field(3, description="calls that must be on record before a tool is looked at")
    check_minutes: Count = Field(60, description="the shortest time between two looks at one tool")
    drop: Annotated[Real, Field(gt=0, le=1)] = Field(
        0.15, description="a fall of the mean score by so much makes a tool a candidate"
    )
    low: Annotated[Real, Field(gt=0, le=1)] = Field(
        0.7, description="a mean score below this makes a tool a candidate"
    )
    tries: Count = Field(3, description="variants that are asked for before one tool is left as it is")
    cases: Count = Field(20, description="held-out real inputs that a variant is tried on")
    repeats: Annotated[Count, Field(ge=2)] = Field(
        5, description="how often each case is measured, for both sides"
    )
    session_seconds: Seconds = Field(1800.0, description="how long an engine may work on a variant")
    budget_usd: Dollars | None = Field(
        None, description="what one batch of optimisation may cost", examples=[50.0]
    )


class Workflows(Section):
    overseer: str = Field("llm", description="the engine that plans a workflow from a sentence")
    model: str | None = Field(None, description="the model it is asked to use", examples=["gpt-5-mini"])
    repairs: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="how often a bad plan is sent back to the model with what is wrong"
    )
    concurrency: Annotated[int, Field(ge=0)] = Field(
        0, description="steps of one run that run at once; 0 fits it to the machine"
    )
    spread: bool = Field(
        False, description="whether steps that find no free place here are offered to other workers"
    )
    cache_days: Count = Field(30, description="how long the results of steps are kept to be used again")
    llm: str = Field("llm", description="the engine that answers the model calls of steps")
    reuse: Annotated[Real, Field(gt=0, le=1)] = Field(
        0.9, description="likeness to a remembered plan from which that plan is used again"
    )
    template: Annotated[Real, Field(gt=0, le=1)] = Field(
        0.8, description="likeness from which a remembered plan is shown to the overseer as an example"
    )
    evolution: Evolution = Field(default_factory=Evolution, description="how tools are made better")


class McpToolServer(Section):
    argv: str | None = Field(None, description="the program to start", examples=["npx some-server"])
    url: str | None = Field(None, description="or where it listens", examples=["http://127.0.0.1:8000/mcp"])
    environment: str | None = Field(
        None, description="names of variables that the program is given", examples=["TOKEN"]
    )


class Tools(Section):
    folders: str | None = Field(
        None, description="further folders with tool definitions, apart by ':'", examples=["/srv/tools"]
    )
    memory_mb: Annotated[Count, Field(ge=16)] = Field(
        512, description="the most memory of a tool that names no limit of its own"
    )
    output_bytes: Count = Field(1_048_576, description="the longest answer of a tool")
    environment_days: Count = Field(30, description="how long an environment that nobody uses is kept")
    install_seconds: Seconds = Field(600.0, description="how long installing a tool's requirements may take")
    variables: str | None = Field(
        None,
        description="names of environment variables whose values a definition may ask for, such as keys",
        examples=["WEATHER_KEY"],
    )
    mcp: dict[str, McpToolServer] = Field(
        default_factory=dict,
        description="a server whose tools can be used as steps",
        json_schema_extra={"example": "files"},
    )
