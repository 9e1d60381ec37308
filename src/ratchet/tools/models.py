"""Asking a model on behalf of a step, on the account of its run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ratchet.config import Settings
from ratchet.config.engine_settings import Llm
from ratchet.engines import EventKind, Failure, Request, Session, SessionEvent, SessionFailed
from ratchet.engines.llm.choice import default_model
from ratchet.engines.providers import maker_of
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.run import Keeping, plain, run_session
from ratchet.engines.transcript import Account, write_in_thread
from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.templates import prompt_of
from ratchet.kernel import BudgetExceeded, Limits, Missing, Misuse
from ratchet.ledger import Transaction
from ratchet.ledger.usage import check
from ratchet.runtime import configured_budgets
from ratchet.tools.call import LineReader, Occasion, ToolCallFailed, ToolResult, ToolUse
from ratchet.tools.definition import LlmBody, Tool
from ratchet.tools.programs import NOT_FOUND, report_output

_ROLE = "step"
_LLM = "llm"
_DEFAULTS = "default"
_ABOUT = ("title", "description", "default", "examples")


async def call_llm_tool(
    tool: Tool, body: LlmBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """Fill the prompt of the tool with the inputs, and ask. Raises `ToolCallFailed`."""
    try:
        prompt = prompt_of(body.prompt_template, values)
        model = model_of(body, occasion.runtime.settings, os.environ)
    except (StepFailed, Misuse, Missing) as error:
        raise ToolCallFailed(
            f"tool {tool.id}: {error}", hint=error.hint, final=True, blocks=isinstance(error, Missing)
        ) from error
    return await call_model(
        prompt,
        occasion,
        system=body.system_prompt,
        model=model,
        temperature=body.temperature,
        schema=None if _is_text(tool.output_schema) else tool.output_schema,
        output_tokens=body.max_tokens,
        seconds=seconds,
    )


async def call_model(
    prompt: str,
    occasion: Occasion,
    *,
    system: str | None = None,
    model: str | None = None,
    temperature: float | None = None,
    schema: Mapping[str, Any] | None = None,
    output_tokens: int | None = None,
    seconds: float | None = None,
) -> ToolResult:
    """What a model answers: a text, or with a `schema` a value that fits it. Raises `ToolCallFailed`.

    `model` is a role, `role.tier`, `endpoint/model` or the plain name of a model; without one `llm.default` is asked.
    What it used is charged to the occasion's spender, whose budgets hold, and the session is on record.
    """
    if occasion.answers is not None:
        known = await asyncio.to_thread(occasion.answers.find, prompt)
        if known is not None:
            return known
    runtime, settings = occasion.runtime, occasion.runtime.settings
    began = time.monotonic()

    async def answered(session: Session) -> ToolResult:
        value = session.text if schema is None else session.output
        return ToolResult(value, _use(session, began), simulated=session.simulated)

    try:
        left = await asyncio.to_thread(_left, occasion)
        engine = open_engine(settings.workflows.llm, EngineContext(settings, runtime.home, os.environ))
        if model is not None and _asks_llm(settings):
            model = choose_model(settings.llm, model=model)
        # What fits a schema is one JSON document, of which no line means anything by itself.
        lines = None if schema is not None or occasion.give_line is None else LineReader(occasion.give_line)
        request = Request(
            prompt=prompt,
            system=system,
            model=model,
            output_schema=schema,
            temperature=temperature,
            output_tokens=output_tokens,
            deadline_seconds=seconds or occasion.seconds,
            limits=left,
            listen=partial(_listen, occasion, lines),
        )
        return await run_session(
            _account(occasion, engine.name, model),
            write_in_thread(runtime.ledger),
            engine,
            plain(request),
            Keeping(
                role=_ROLE,
                tries=settings.engines.tries,
                prompt=False,
                live=False,
                given_up="the step was cancelled",
            ),
            take=answered,
            record=partial(_keep, occasion, prompt),
        )
    except SessionFailed as failed:
        raise _failure(failed, began) from failed
    except (BudgetExceeded, Misuse, Missing) as error:
        blocks = isinstance(error, Missing)
        raise ToolCallFailed(str(error), hint=error.hint, final=True, blocks=blocks) from error


def model_of(body: LlmBody, settings: Settings, environment: Mapping[str, str]) -> str | None:
    """The model that a tool asks, in the words of the engine that answers steps. Raises `Misuse` if there is none."""
    if not _asks_llm(settings):
        return body.model
    return choose_model(
        settings.llm, model=body.model, role=body.role, tier=body.tier, environment=environment
    )


def asked_model(body: LlmBody | None, settings: Settings, environment: Mapping[str, str]) -> str:
    """Whom a tool, or a plain question, would ask now: another answer may come when that is another model."""
    chosen = None if body is None else body.model
    with contextlib.suppress(Misuse, Missing):
        chosen = None if body is None else model_of(body, settings, environment)
    if chosen is None and _asks_llm(settings):
        chosen = default_model(settings.llm, environment)
    role, _, tier = (chosen or "").partition(".")
    meant = settings.llm.roles.get(role, {})
    return f"{settings.workflows.llm}/{chosen}/{meant.get(tier, meant) if meant else ''}"


def choose_model(
    settings: Llm,
    *,
    model: str | None = None,
    role: str | None = None,
    tier: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Which model is meant, in the words of `llm` engines; nothing leaves it to `llm.default`.

    A plain name of a model whose provider is unknown goes to Ollama. A tier is looked for in its role (which may
    be part of it: `role.tier`), then in the role `default`; where neither has it, `llm.default` answers, or
    the only provider that `environment` has a key of. Raises `Misuse` if there is none of these.
    """
    if model is not None:
        named = "/" in model or model.partition(".")[0] in settings.roles or maker_of(model) is not None
        return model if named else f"ollama/{model}"
    if tier is not None and "." in tier:
        role, _, tier = tier.partition(".")
    if tier is None and role is None:
        return None
    for place in (role, _DEFAULTS):
        tiers = settings.roles.get(place or "", {})
        if tier in tiers:
            return f"{place}.{tier}"
        if tier is None and place == role and tiers:
            return role
    if default_model(settings, environment or {}) is None:
        wanted = ".".join(filter(None, (role or _DEFAULTS, tier)))
        raise Misuse(
            f"no model is configured for {wanted}",
            hint=f"set llm.roles.{wanted} or llm.roles.{_DEFAULTS}.{tier or _DEFAULTS} or llm.default in ratchet.toml",
        )
    return None


def _asks_llm(settings: Settings) -> bool:
    """Whether steps ask plain models; a recording or another engine takes the name of a model as it is."""
    return settings.workflows.llm.partition(":")[0] == _LLM


def _is_text(schema: Mapping[str, Any] | None) -> bool:
    """Whether any text will do, for which a model need not write JSON."""
    return schema is not None and schema.get("type") == "string" and schema.keys() <= {"type", *_ABOUT}


def _left(occasion: Occasion) -> Limits:
    with occasion.runtime.ledger.read() as tx:
        return check(tx, occasion.spender, configured_budgets(occasion.runtime.settings))


def _account(occasion: Occasion, engine: str, model: str | None) -> Account:
    budgets = configured_budgets(occasion.runtime.settings)
    return Account(occasion.runtime.ledger, occasion.actor, occasion.spender, budgets, engine, model)


def _listen(occasion: Occasion, lines: LineReader | None, event: SessionEvent) -> None:
    """What the model says is also shown, and passed on, while it answers."""
    if event.kind is EventKind.MESSAGE:
        report_output(occasion, "token", event.text)
        if lines is not None:
            lines(event.text)


def _keep(
    occasion: Occasion, prompt: str, tx: Transaction, _number: int, session: Session, called: ToolResult
) -> ToolResult:
    if occasion.answers is not None and not session.simulated:
        occasion.answers.keep(tx, prompt, called)
    return called


def _failure(failed: SessionFailed, began: float) -> ToolCallFailed:
    late = failed.failure is Failure.TIMEOUT
    use = _use(failed.session, began)
    return ToolCallFailed(
        str(failed),
        hint="raise the timeout of the step or of its tool, or ask for less" if late else failed.hint,
        # What is needed is not there: the same whether that is a program, or a model.
        use=replace(use, exit_code=NOT_FOUND) if failed.failure is Failure.MISSING else use,
        final=failed.failure.is_hopeless,
        blocks=failed.failure.is_permanent,
    )


def _use(session: Session, began: float) -> ToolUse:
    return ToolUse(
        wall_ms=(time.monotonic() - began) * 1000,
        cost_microusd=session.usage.cost_microusd,
        tokens=session.usage.tokens,
        unpriced_tokens=session.usage.unpriced_tokens,
    )
