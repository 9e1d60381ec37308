"""The tables of workflows and tools, projects and protocols, agents, and memory."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from ratchet.config.section import Count, Dollars, Port, Real, Seconds, Section, Whole


def _server(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    if "@" in url:
        raise ValueError("must not contain a password; put the key of the server into memory.qdrant.api_key")
    return url


class Qdrant(Section):
    url: Annotated[str, AfterValidator(_server)] | None = Field(
        None, description="address of the Qdrant server", examples=["http://127.0.0.1:6333"]
    )
    api_key: SecretStr | None = Field(
        None, min_length=1, description="key of the Qdrant server", examples=["the server's key"]
    )
    collection: str = Field(
        "ratchet",
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="collection that holds the memory; it is made when it is not there",
    )
    timeout_seconds: Count = Field(10, description="how long one request may take")


class MemorySettings(Section):
    store: Literal["sqlite", "qdrant"] = Field(
        "sqlite",
        description="sqlite keeps the memory in a file of the home, qdrant on a server (needs the extra `qdrant`)",
    )
    qdrant: Qdrant = Field(default_factory=Qdrant, description="the Qdrant server")

    @model_validator(mode="after")
    def _server_is_named(self) -> Self:
        if self.store == "qdrant" and self.qdrant.url is None:
            raise ValueError("store is qdrant, but qdrant.url is not set; name the server, or use sqlite")
        return self


class Agents(Section):
    engine: str | None = Field(
        None, description="who writes agents; `engines.default`, if not given", examples=["codex"]
    )
    host: str = Field("127.0.0.1", description="where the stable addresses of agents are served")
    port: Port = Field(
        8125, description="and on which port; not set, the next free one if it is taken; 0 takes any"
    )
    network: bool = Field(
        False,
        description="whether all agents may use the whole network, this machine and its own included; otherwise each"
        " reaches only Ratchet, other agents by it, and what `ratchet agent egress add` allows it",
    )
    session_seconds: Seconds = Field(
        1800.0, description="how long the Architect's engine may work on a change"
    )
    tries: Count = Field(
        2, description="sessions for one change, each with the reason why the one before did not pass"
    )
    tests_seconds: Seconds = Field(300.0, description="how long the tests of a version may take")
    start_seconds: Seconds = Field(30.0, description="how long a server may take until it lists its tools")
    approval: Literal["never", "breaking", "always"] = Field(
        "breaking",
        description="when a person is asked before a change is kept: `breaking` where it breaks the contract, `always`,"
        " or `never`: then what would break it is refused; `ratchet agent approval` sets it for one agent",
    )
    record_share: Annotated[Real, Field(ge=0, le=1)] = Field(
        1.0,
        description="the share of the calls of agents that is recorded, with arguments and answers; 0 is none",
    )
    record_bytes: Count = Field(
        16_384, description="how much of the arguments, and of the answer, of a recorded call is kept"
    )
    records_kept: Count = Field(
        1_000, description="how many recorded calls of each agent are kept, the newest"
    )
    replay_calls: Annotated[Whole, Field(ge=0)] = Field(
        20,
        description="how many recorded calls are made again to the old and the new version before a change is kept",
    )
    learn: Literal["ask", "auto"] = Field(
        "ask",
        description="whether a person starts the change that an incident calls for (`ask`), or it is started by itself"
        " (`auto`); `ratchet agent learn` sets it for one agent",
    )
    learn_after: Count = Field(
        3,
        description="with `auto`, how many calls must have gone wrong in the same way before a change is started",
    )
    learn_pause_seconds: Annotated[Real, Field(ge=0)] = Field(
        60.0,
        description="how long remarks of callers at the Tuner are collected before they are worked on together",
    )
    learn_runs_per_day: Annotated[Whole, Field(ge=0)] = Field(
        6,
        description="changes of one agent that its Tuner and its incidents may start on a day (UTC); 0 is none",
    )
    learn_usd_per_day: Annotated[Real, Field(ge=0)] = Field(
        5.0, description="what such changes of one agent may cost on a day before no further one is started"
    )
    learn_tokens_per_day: Annotated[Whole, Field(ge=0)] = Field(
        5_000_000,
        description="the tokens that such changes of one agent may use on a day, also those without a price",
    )
    traffic_calls: Annotated[Count, Field(ge=20)] = Field(
        200, description="calls of both versions that a split of the traffic waits for before it ends"
    )
    traffic_margin: Annotated[Real, Field(gt=0, lt=1)] = Field(
        0.05,
        description="by how much the share of calls that go wrong may be higher with a version that is promoted",
    )
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
        900.0, description="a version that is not called for so long is stopped until needed"
    )
    session_idle_seconds: Seconds = Field(
        3600.0, description="a session of a client that is silent for so long is over"
    )
    drain_seconds: Seconds = Field(
        3600.0, description="how long sessions that cannot follow may stay with a version"
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


REVIEWER_POLICIES = ("independent", "other-model", "any")
"""What `protocols.reviewer` may ask for in place of an engine's name."""


class Projects(Section):
    root: str = Field("projects", description="where clones are kept; a relative path starts at the home")
    auto_clone: bool = Field(True, description="whether a repository that is not here is cloned")
    github_ssh: bool = Field(False, description="whether the origin of a GitHub clone is rewritten to SSH")
    git_user: str | None = Field(None, description="who commits in clones", examples=["Ratchet"])
    git_email: str | None = Field(
        None, description="the address of who commits", examples=["ratchet@example.org"]
    )
    require_clarifications: bool = Field(
        False, description="whether onboarding waits until its questions are answered"
    )
    discovery: str | None = Field(
        None, description="the engine that is asked where files alone do not show", examples=["codex"]
    )
    discovery_seconds: Seconds = Field(600.0, description="how long that engine may take")
    setup_seconds: Seconds = Field(1800.0, description="how long setting up a project may take")
    environment_days: Count = Field(30, description="how long an environment that is not used is kept")
    remote_seconds: Seconds = Field(300.0, description="how long a clone, fetch or push may take")
    secret_key: SecretStr | None = Field(
        None,
        description="the key for secrets at rest, for a fleet; by default it is in the file `secret.key` of the home",
        examples=["a Fernet key"],
    )


class Models(Section):
    planning: str | None = Field(None, description="the model that plans", examples=["gpt-5.1"])
    decompose: str | None = Field(None, description="the model that takes steps apart", examples=["gpt-5.1"])
    exec: str | None = Field(None, description="the model that carries out steps", examples=["gpt-5.1-codex"])
    qa: str | None = Field(None, description="the model that reviews", examples=["gpt-5.1"])
    discovery: str | None = Field(
        None, description="the model that looks at a repository", examples=["gpt-5.1"]
    )


class Protocols(Section):
    automatic: bool = Field(
        True, description="whether a plan is carried out by itself; otherwise each step is started by hand"
    )
    baseline: bool = Field(
        True, description="whether the checks are run on the untouched base before anything is spent"
    )
    planner: str | None = Field(
        None, description="the engine that plans; `engines.default`, if not given", examples=["codex"]
    )
    engine: str | None = Field(
        None,
        description="the engine that carries out steps; `engines.default`, if not given",
        examples=["codex"],
    )
    reviewer: str = Field(
        "any",
        min_length=1,
        description="who reviews: independent (another engine than the author), other-model (or the same engine with "
        "another model), any (whatever there is, marked `same model` if it is that), or the name of an engine",
        examples=["claude"],
    )
    models: Models = Field(default_factory=Models, description="the models that engines are asked to use")
    decompose: bool = Field(True, description="whether steps that need it are taken apart after planning")
    repairs: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="how often a bad plan is sent back to the engine with what is wrong"
    )
    concurrency: Count = Field(2, description="steps of one protocol that run at once")
    fixes: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="how often findings are given back to the author before the step has failed"
    )
    session_seconds: Seconds = Field(3600.0, description="how long an engine may work on a step")
    check_seconds: Seconds = Field(1800.0, description="how long one check of the repository may take")
    diff_lines: Count = Field(5000, description="the most changed lines of one step")
    trigger_depth: Count = Field(3, description="how many triggers may follow one another")
    loops: Count = Field(
        20, description="how often one step may make a protocol go back, whatever its policies say"
    )
    worktrees: Annotated[int, Field(ge=0)] = Field(
        20, description="worktrees of ended protocols that each project keeps; branches stay"
    )
    push: bool = Field(True, description="whether branches are pushed to the origin")
    pull_requests: bool = Field(
        True, description="whether a draft pull request is opened for a pushed branch"
    )
    ci: Literal["auto", "required", "off"] = Field(
        "auto",
        description="whether steps wait for CI: if checks are required and a webhook secret is set, always, or never",
    )
    qa_on_ci: bool = Field(False, description="whether a passed CI starts the review of a step once more")
    webhook_secret: SecretStr | None = Field(
        None,
        description="what webhooks are signed with, for projects that have no secret of their own",
        examples=["a long random text"],
    )
    github_url: str = Field("https://api.github.com", description="where the REST interface of GitHub is")
    gitlab_url: str = Field("https://gitlab.com/api/v4", description="where the REST interface of GitLab is")
    audit_minutes: Count | None = Field(
        None, description="how often the specs of protocols are audited; unset never", examples=[60]
    )


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
    generated: Annotated[int, Field(ge=0, le=10_000)] = Field(
        100, description="generated inputs on which a faster variant must agree with the version in use"
    )
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
        0,
        description="steps of one run that run at once; 0 lets as many compute as there are cores, 64 ask models, and "
        "up to 256 wait, which takes no core",
    )
    spread: bool = Field(
        False, description="whether steps that find no free place here are offered to other workers"
    )
    cache_days: Count = Field(30, description="how long the results of steps are kept to be used again")
    llm: str = Field("llm", description="the engine that answers the model calls of steps")
    reuse: Annotated[Real, Field(gt=0, le=1)] = Field(
        0.9,
        description="likeness to a remembered plan from which the overseer is asked whether that plan fits",
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
    environment_days: Count = Field(30, description="how long an unused environment is kept")
    install_seconds: Seconds = Field(600.0, description="how long installing a tool's requirements may take")
    variables: str | None = Field(
        None,
        description="names of environment variables whose values a definition may ask for, apart by spaces",
        examples=["WEATHER_KEY"],
    )
    mcp: dict[str, McpToolServer] = Field(
        default_factory=dict,
        description="a server whose tools can be used as steps",
        json_schema_extra={"example": "files"},
    )
