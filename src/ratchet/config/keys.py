"""Every key that may be set, with its default, its range and what it is for."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    field_validator,
    model_validator,
)

from ratchet.config.engine_settings import Claude, Codex, CommandSettings, Llm
from ratchet.config.redaction import DatabaseUrl
from ratchet.config.section import Count, Dollars, Port, Real, Seconds, Section, Words
from ratchet.config.workflow_settings import Agents, MemorySettings, Projects, Protocols, Tools, Workflows
from ratchet.kernel import BudgetPolicy, is_name


class Engines(Section):
    default: str = Field(
        "codex",
        min_length=1,
        description="the engine that is used when none is named; unset is claude if the only key in the environment is "
        "Anthropic's, else codex",
    )
    deadline_seconds: Seconds = Field(1800.0, description="wall time after which a session is ended")
    tries: Count = Field(3, description="tries of a session that failed before it did anything")
    readable: Words = Field(
        (),
        description="paths that agent programs may read beside the system, the programs on the PATH and the workspace",
        examples=[["~/.rustup", "/srv/data"]],
    )
    codex: Codex = Field(default_factory=Codex, description="the Codex CLI")
    claude: Claude = Field(default_factory=Claude, description="the Claude Agent SDK")
    command: dict[str, CommandSettings] = Field(
        default_factory=dict,
        description="any other agent with a command line, under a name of your own",
        json_schema_extra={"example": "mine"},
    )

    @field_validator("readable")
    @classmethod
    def _absolute(cls, readable: tuple[str, ...]) -> tuple[str, ...]:
        for path in readable:
            if not path.startswith(("/", "~/")) or ".." in path.split("/") or path.strip("/") == "":
                raise ValueError(f"{path!r} must be an absolute path, or begin with ~/, and be more than /")
        return readable

    @field_validator("command")
    @classmethod
    def _named(cls, command: dict[str, CommandSettings]) -> dict[str, CommandSettings]:
        for name in command:
            if not is_name(name):
                raise ValueError(
                    f"the engine name {name!r} must be lower-case letters, digits, '.', '_' and '-'"
                )
        return command


class Research(Section):
    stagger_seconds: Annotated[Real, Field(ge=0)] = Field(
        1.0, description="pause between the starts of the first sessions of a run"
    )
    backoff_seconds: Seconds = Field(
        30.0,
        description="pause of a specialist after a session that failed or submitted nothing; doubles with each",
    )
    backoff_cap_seconds: Seconds = Field(900.0, description="the longest such pause")
    session_failures: Count = Field(
        8, description="such sessions of each specialist in a row after which the run is blocked"
    )
    infra_tries: Count = Field(
        3, description="measurements of a trial that the machine may spoil before it counts as an infra_error"
    )
    infra_errors: Count = Field(5, description="such trials in a row after which a run stops")
    prompt_chars: Annotated[Count, Field(ge=2_000)] = Field(
        24_000, description="the most that a prompt says of earlier trials"
    )
    novelty: Annotated[Real, Field(gt=0, le=1)] = Field(
        1.0,
        description="how alike an idea may be to one that was tried; below 1 this needs the extra memory",
    )

    @model_validator(mode="after")
    def _pauses_fit(self) -> Self:
        if self.backoff_cap_seconds < self.backoff_seconds:
            raise ValueError(
                f"backoff_cap_seconds is {self.backoff_cap_seconds:g}; it must be at least backoff_seconds "
                f"({self.backoff_seconds:g})"
            )
        return self


DEFAULT_QUEUE = "default"


class Server(Section):
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(
        8484, description="port to listen on; not set, the next free one if it is taken; 0 takes any"
    )
    token: SecretStr | None = Field(
        None,
        min_length=1,
        description="bearer token of the API; generated at the first start when unset",
        examples=["a long random text"],
    )


class RuntimeSettings(Section):
    slots: Count = Field(
        default_factory=lambda: max(4, 2 * (os.cpu_count() or 1)),
        description="jobs that one process runs at once",
    )
    poll_seconds: Seconds = Field(
        2.0, description="how often a worker looks for jobs by itself; it is woken when there is one"
    )
    heartbeat_seconds: Seconds = Field(2.0, description="how often a worker says that it lives")
    dead_after_seconds: Seconds = Field(
        10.0, description="silence after which a worker's jobs are handed on; at least three heartbeats"
    )
    max_attempts: Count = Field(3, description="tries of a job before it has failed")
    retry_base_seconds: Seconds = Field(
        1.0, description="pause before the second try; doubles with each further one"
    )
    retry_cap_seconds: Seconds = Field(60.0, description="the longest pause between two tries")
    max_recoveries: Count = Field(
        20,
        description="workers that may die in a row while doing one job without progress; then its run is blocked",
    )
    job_timeout_seconds: Seconds | None = Field(
        None, description="wall time after which a job is stopped", examples=[3600.0]
    )
    drain_seconds: Annotated[Real, Field(ge=0)] = Field(
        30.0, description="how long running jobs may take to finish when the process is asked to stop"
    )

    @model_validator(mode="after")
    def _spans_fit(self) -> Self:
        least = 3 * self.heartbeat_seconds
        if self.dead_after_seconds < least:
            raise ValueError(
                f"dead_after_seconds is {self.dead_after_seconds:g}; it must be at least {least:g}, that is"
                f" three times heartbeat_seconds ({self.heartbeat_seconds:g}),"
                " or a late beat looks like a death"
            )
        if self.retry_cap_seconds < self.retry_base_seconds:
            raise ValueError(
                f"retry_cap_seconds is {self.retry_cap_seconds:g}; it must be at least retry_base_seconds "
                f"({self.retry_base_seconds:g})"
            )
        return self


class Queue(Section):
    concurrency: Count | None = Field(
        None, description="jobs of this queue that run at once in the whole fleet", examples=[4]
    )
    rate_limit: Count | None = Field(None, description="jobs that may start in rate_seconds", examples=[60])
    rate_seconds: Seconds | None = Field(None, description="the span of rate_limit", examples=[60.0])

    @model_validator(mode="after")
    def _rate_is_whole(self) -> Self:
        if (self.rate_limit is None) != (self.rate_seconds is None):
            given, absent = (
                ("rate_limit", "rate_seconds") if self.rate_limit else ("rate_seconds", "rate_limit")
            )
            raise ValueError(
                f"{given} is {getattr(self, given):g}, but {absent} is not set; set both or neither"
            )
        return self


class BudgetLimits(Section):
    tokens: Count | None = Field(None, description="tokens in and out", examples=[1_000_000])
    cost_usd: Dollars | None = Field(None, description="money, in US dollars", examples=[5.0])
    wall_seconds: Seconds | None = Field(None, description="wall time", examples=[3600.0])
    trials: Count | None = Field(None, description="attempts with a score", examples=[100])


class BudgetSettings(Section):
    policy: BudgetPolicy = Field(
        BudgetPolicy.STRICT,
        description="what an exhausted budget does: strict stops, warn notes it, off ignores it",
    )
    attempt: BudgetLimits = Field(
        default_factory=BudgetLimits, description="the most that one attempt may use"
    )
    run: BudgetLimits = Field(default_factory=BudgetLimits, description="the most that one run may use")
    project: BudgetLimits = Field(
        default_factory=BudgetLimits, description="the most that one project may use"
    )


def _bucket(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError("must be s3://BUCKET/PREFIX; leave it out to keep artifacts in the home")
    if "@" in parts.netloc:
        raise ValueError("must not contain a key; put it into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    unknown = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} - {"endpoint", "region"}
    if unknown:
        raise ValueError(f"has the parameter {min(unknown)!r}; there are endpoint and region")
    return url


class Artifacts(Section):
    url: Annotated[str, AfterValidator(_bucket)] | None = Field(
        None,
        description="an S3-compatible store for machines that share no disk (needs the extra `s3`);"
        " unset keeps artifacts in the home",
        examples=["s3://ratchet/team?endpoint=https://s3.example.org&region=eu-1"],
    )
    retention_days: Count | None = Field(
        None,
        description="age at which artifacts of finished runs are removed; unset keeps them",
        examples=[90],
    )
    grace_minutes: Count = Field(60, description="age below which no artifact is removed")


class PlacementSettings(Section):
    kind: Literal["local", "ray", "processes"] = Field(
        "local",
        description="local is the machine of each worker, ray the nodes of a Ray cluster (needs the extra `ray`), "
        "processes a cluster that is only pretended by processes of this machine, to try it out",
    )
    address: str = Field(
        "auto",
        min_length=1,
        description="of kind ray: HOST:PORT of the head, or auto for the cluster that this machine belongs to",
        examples=["10.0.0.5:6379"],
    )
    cache: str = Field(
        "~/.cache/ratchet-node",
        min_length=1,
        description="the directory on each node for what it was sent; unused for a week, it is removed",
    )
    nodes: Count = Field(2, description="of kind processes: how many")


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Log(Section):
    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        "info", description="the least serious lines that are written: debug, info, warning or error"
    )
    format: Literal["text", "json"] = Field("text", description="text for people, json for machines")


def _collector(endpoint: str) -> str:
    if not endpoint.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    if "@" in endpoint:
        raise ValueError("must not contain a password; put credentials into OTEL_EXPORTER_OTLP_HEADERS")
    return endpoint


class Tracing(Section):
    enabled: bool = Field(False, description="send OpenTelemetry spans (needs the extra `otel`)")
    endpoint: Annotated[str, AfterValidator(_collector)] | None = Field(
        None, description="where spans go, over OTLP and HTTP", examples=["http://127.0.0.1:4318"]
    )


def _database_url(value: object) -> DatabaseUrl:
    if not isinstance(value, str):
        raise ValueError("must be a text such as 'sqlite:///ledger.db'")
    return DatabaseUrl.parse(value)


def _named_queues(queues: dict[str, Queue]) -> dict[str, Queue]:
    for name in queues:
        if not is_name(name):
            raise ValueError(f"the queue name {name!r} must be lower-case letters, digits, '.', '_' and '-'")
        if name == "backend":
            raise ValueError("the queue name 'backend' is taken by the API's list of queues")
    return {DEFAULT_QUEUE: Queue(), **queues}


Queues = Annotated[dict[str, Queue], AfterValidator(_named_queues)]


class Keys(Section):
    """Every table of the settings. `Settings` holds their values."""

    database_url: Annotated[DatabaseUrl, PlainValidator(_database_url), PlainSerializer(str)] = Field(
        description="the ledger: a SQLite file (a relative path starts at the home), or postgresql://…"
    )
    server: Server = Field(default_factory=Server, description="the HTTP API")
    runtime: RuntimeSettings = Field(default_factory=RuntimeSettings, description="how jobs are run")
    queues: Queues = Field(
        default_factory=dict,
        description="limits of one queue; the queue `default` always exists",
        json_schema_extra={"example": "gpu"},
    )
    budgets: BudgetSettings = Field(default_factory=BudgetSettings, description="how much work may cost")
    artifacts: Artifacts = Field(default_factory=Artifacts, description="how long outputs are kept")
    engines: Engines = Field(default_factory=Engines, description="what proposes changes")
    llm: Llm = Field(default_factory=Llm, description="models behind plain endpoints, and who uses which")
    memory: MemorySettings = Field(default_factory=MemorySettings, description="lessons, tools and past work")
    placement: PlacementSettings = Field(
        default_factory=PlacementSettings, description="where sandboxed work runs"
    )
    agents: Agents = Field(default_factory=Agents, description="services that are rewritten while they serve")
    research: Research = Field(default_factory=Research, description="runs that improve a recipe")
    workflows: Workflows = Field(default_factory=Workflows, description="plans that run as DAGs")
    tools: Tools = Field(default_factory=Tools, description="what steps of a workflow may call")
    projects: Projects = Field(default_factory=Projects, description="repositories that are worked on")
    protocols: Protocols = Field(default_factory=Protocols, description="planned work on a project")
    log: Log = Field(default_factory=Log, description="what the processes say about themselves")
    tracing: Tracing = Field(default_factory=Tracing, description="OpenTelemetry spans")
