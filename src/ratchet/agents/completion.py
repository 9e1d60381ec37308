"""Asking a model on behalf of an agent, which has no key of its own.

What is used is charged to the run that made the version, so that the budgets of Ratchet hold, and counted for the
version itself, which may use no more than `agents.llm_tokens`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.engines import Request, Session
from ratchet.engines.registry import EngineContext, names_address, open_engine
from ratchet.engines.run import Keeping, plain, run_session
from ratchet.engines.transcript import Account, write_in_thread
from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits, Misuse
from ratchet.ledger import Budgets, Spender, Transaction, to_json
from ratchet.ledger.agents import AgentVersion, get_agent, get_version
from ratchet.ledger.runs import get_run
from ratchet.ledger.usage import add_total, check, check_total
from ratchet.runtime import Runtime, configured_budgets

_MOST = 500
_DEEPEST = 20
_ABOUT = frozenset({"title", "description", "default", "examples", "format", "$schema"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_SIZES = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_WORDS = frozenset({"type", "enum", "const", "required"}) | _ABOUT | _NUMBERS | _SIZES
_ONE = frozenset({"items", "additionalProperties"})
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties"})
_DEFINED = ("$defs", "definitions")
_USABLE = ", ".join(sorted({*_WORDS, *_ONE, *_SEVERAL, *_NAMED, *_DEFINED, "$ref"}))


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema with every `$ref` replaced by what it means. Raises `Misuse` for one that cannot be had so."""
    defined = {
        f"#/{place}/{name}": each for place in _DEFINED for name, each in _table(schema, place).items()
    }
    whole = _Plain(defined).of({name: each for name, each in schema.items() if name not in _DEFINED})
    assert isinstance(whole, dict)
    return whole


def _table(schema: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    found = schema.get(place, {})
    if not isinstance(found, Mapping):
        raise Misuse(f"{place} of the schema is not an object")
    return found


class _Plain:
    def __init__(self, defined: Mapping[str, Any]) -> None:
        self._defined = defined
        self._left = _MOST

    def of(self, schema: Any, depth: int = 0) -> dict[str, Any] | bool:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise Misuse(
                f"the schema has more than {_MOST} parts, is more than {_DEEPEST} deep, or refers to itself",
                hint="ask for something simpler",
            )
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise Misuse(f"a part of the schema is neither an object nor true or false: {str(schema)[:80]}")
        plain: dict[str, Any] = {}
        for word, value in schema.items():
            plain |= self._meant(word, value, depth + 1)
        return plain

    def _meant(self, word: str, value: Any, depth: int) -> dict[str, Any]:
        if word in _WORDS:
            return {word: value}
        if word in _ONE:
            return {word: self.of(value, depth)}
        if word in _SEVERAL and isinstance(value, list):
            return {word: [self.of(each, depth) for each in value]}
        if word in _NAMED and isinstance(value, Mapping):
            return {word: {name: self.of(each, depth) for name, each in value.items()}}
        if word == "$ref" and isinstance(value, str) and value in self._defined:
            meant = self.of(self._defined[value], depth)
            return meant if isinstance(meant, dict) else {"allOf": [meant]}
        raise Misuse(
            f"{word[:80]!r} cannot be used so in the schema of an answer", hint=f"use only {_USABLE}"
        )


LONGEST_QUESTION = 1_048_576
"""Bytes of a prompt, what the model is told beforehand, and a schema together."""
_ROLE = "asked"


@dataclass(frozen=True, slots=True)
class _Asker:
    """A version that asks, on whose account, and what is left for it."""

    version: AgentVersion
    spender: Spender
    left: Limits


async def ask_llm(
    runtime: Runtime,
    *,
    agent: str,
    commit: str,
    prompt: str,
    system: str | None = None,
    schema: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """The answer to `prompt` as `text`, and if a schema is given as `output`, which fits it.

    Raises `SessionFailed` when there is no answer, `BudgetExceeded` when nothing is left to ask with, and `Misuse` for
    a question that cannot be asked. `simulated` in the answer says that no model has given it.
    """
    _check_length(prompt, system, schema)
    if names_address(model):
        # The engine has the network, and an agent does not.
        raise Misuse(f"{model!r} is an address or a file", hint="name a model by its name in the settings")
    settings = runtime.settings
    asker = await asyncio.to_thread(_asker, runtime, agent, commit)
    engine = open_engine(settings.agents.llm, EngineContext(settings, runtime.home, os.environ))
    request = Request(
        prompt=prompt,
        system=system,
        model=model,
        output_schema=None if schema is None else plain_schema(schema),
        deadline_seconds=settings.engines.deadline_seconds,
        limits=asker.left,
    )

    async def take(_: Session) -> None:
        """The answer is all there is."""

    def count(tx: Transaction, session: Session) -> None:
        add_total(tx, "version", asker.version.id, session.usage, _cap(runtime), asker.spender)

    def record(tx: Transaction, _number: int, session: Session, _: None) -> dict[str, Any]:
        count(tx, session)
        return {"text": session.text, "output": session.output, "simulated": session.simulated}

    return await run_session(
        Account(
            runtime.ledger, f"agent {agent}", asker.spender, configured_budgets(settings), engine.name, model
        ),
        write_in_thread(runtime.ledger),
        engine,
        plain(request),
        Keeping(
            role=_ROLE,
            tries=settings.engines.tries,
            prompt=False,
            live=False,
            given_up="the caller did not wait for the answer",
        ),
        take=take,
        record=record,
        failed=lambda tx, failed: count(tx, failed.session),
    )


def _asker(runtime: Runtime, agent: str, commit: str) -> _Asker:
    with runtime.ledger.read() as tx:
        version = get_version(tx, get_agent(tx, agent).id, commit)
        spender = _spender(tx, version)
        left = check(tx, spender, configured_budgets(runtime.settings))
        try:
            return _Asker(
                version, spender, left.tightest(check_total(tx, "version", version.id, _cap(runtime)))
            )
        except BudgetExceeded as used_up:
            used_up.hint = "raise agents.llm_tokens, or give feedback that makes the agent ask less"
            raise


def _spender(tx: Transaction, version: AgentVersion) -> Spender:
    if version.run_id is None:
        return Spender()
    return Spender(run_id=version.run_id, project_id=get_run(tx, version.run_id).project_id)


def _cap(runtime: Runtime) -> Budgets:
    """Kept whatever the policy of the budgets is: an agent is a program that may ask in a loop."""
    return Budgets(BudgetPolicy.STRICT, {"version": Limits(tokens=runtime.settings.agents.llm_tokens)})


def _check_length(prompt: str, system: str | None, schema: Mapping[str, Any] | None) -> None:
    if not prompt.strip():
        raise Misuse("the prompt is empty", hint="say what the model is to answer")
    length = len(prompt.encode(errors="replace")) + len((system or "").encode(errors="replace"))
    length += 0 if schema is None else len(to_json(schema))
    if length > LONGEST_QUESTION:
        raise Misuse(
            f"the question has {length} bytes, and at most {LONGEST_QUESTION} can be asked",
            hint="send only what the model needs",
        )
