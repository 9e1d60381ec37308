"""The tables of projects and protocols."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from ratchet.config.section import Count, Seconds, Section

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
        None, description="the engine that is asked where files alone do not tell", examples=["codex"]
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
