"""One conversation with a model: turn after turn until there is an answer that can be used."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ratchet.config.engine_settings import Llm
from ratchet.engines.endpoint import HiddenKeys
from ratchet.engines.engine import EventKind, Failure, NotAnAnswer, Request, Transcript, parse_answer
from ratchet.engines.llm.call import Asking, CallAccount, ModelQuestion
from ratchet.engines.llm.choice import ModelCandidate
from ratchet.engines.llm.fault import CallFault
from ratchet.engines.llm.tools import SessionTools

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_CONVERSATION_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\.([0-9a-f]{24})", re.ASCII)


@dataclass(frozen=True, slots=True)
class LlmConversation:
    system: str | None = None
    messages: list[ModelMessage] = field(default_factory=list)


class LlmConversations:
    """Files at `root/DAY/…json`. A whole day is dropped at once, so that keeping one costs the same for ever."""

    def __init__(
        self, root: Path, keep_days: int, *, today: Callable[[], datetime.date] | None = None
    ) -> None:
        self._root = root
        self._keep_days = keep_days
        self._today = today or (lambda: datetime.datetime.now(datetime.UTC).date())

    def load(self, name: str) -> LlmConversation:
        """Raises `CallFault` when there is no such conversation (any more), or none that can be read."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        # The name comes from outside and becomes a path.
        found = _CONVERSATION_NAME.fullmatch(name)
        if found is None:
            raise self._unknown(name)
        try:
            stored = json.loads((self._root / found[1] / f"{found[2]}.json").read_bytes())
            return LlmConversation(
                stored["system"], ModelMessagesTypeAdapter.validate_python(stored["messages"])
            )
        except FileNotFoundError:
            raise self._unknown(name) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CallFault(
                Failure.REFUSED,
                f"the conversation {name} cannot be read: {type(error).__name__}",
                hint="start a new one",
                worked=False,
            ) from None

    def _unknown(self, name: str) -> CallFault:
        return CallFault(
            Failure.REFUSED,
            f"there is no conversation {name!r}",
            hint=f"start a new one; they are kept for {self._keep_days} days (llm.resume_days)",
            worked=False,
        )

    def keep(self, conversation: LlmConversation, hide: Callable[[str], str]) -> str:
        """Store it, without what `hide` takes out, and return the name to resume it by."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        messages = ModelMessagesTypeAdapter.dump_python(conversation.messages, mode="json")
        text = json.dumps({"system": conversation.system, "messages": messages}, ensure_ascii=False)
        day, name = self._today().isoformat(), secrets.token_hex(12)
        self._prune()
        _write(self._root / day / f"{name}.json", hide(text))
        return f"{day}.{name}"

    def _prune(self) -> None:
        oldest = (self._today() - datetime.timedelta(days=self._keep_days)).isoformat()
        if not self._root.is_dir():
            return
        for day in self._root.iterdir():
            if _DAY.fullmatch(day.name) and day.name < oldest:
                # Another process may be at it as well.
                shutil.rmtree(day, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        # A model may leave half of a surrogate pair behind.
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


_NAME = "answer"
_DESCRIPTION = "Give the final answer."

Way = Literal["native", "tool", "prompt"]


def way_for(candidate: ModelCandidate, model: Model, schema: Mapping[str, Any]) -> Way:
    """How `model` is given the schema."""
    wanted = candidate.endpoint.structured
    # Protocols and tools know objects only; any other value is asked for in words.
    if schema.get("type") != "object":
        return "prompt"
    if wanted != "auto":
        return wanted
    if model.profile.get("supports_json_schema_output"):
        return "native"
    return "tool" if model.profile.get("supports_tools", True) else "prompt"


def with_schema(
    parameters: ModelRequestParameters, schema: Mapping[str, Any], way: Way
) -> ModelRequestParameters:
    """`parameters` that also ask for an answer that fits `schema`."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    # The library rewrites what it is given.
    own = copy.deepcopy(dict(schema))
    if way == "native":
        return dataclasses.replace(
            parameters,
            output_mode="native",
            output_object=OutputObjectDefinition(json_schema=own, name=_NAME),
            allow_text_output=False,
        )
    if way == "tool":
        tool = ToolDefinition(
            name=_NAME, description=_DESCRIPTION, parameters_json_schema=own, kind="output", strict=False
        )
        return dataclasses.replace(
            parameters, output_mode="tool", output_tools=[tool], allow_text_output=False
        )
    part = InstructionPart(content=instruction(schema))
    return dataclasses.replace(parameters, instruction_parts=[*(parameters.instruction_parts or []), part])


def instruction(schema: Mapping[str, Any]) -> str:
    return (
        "Give your final answer as one JSON value and nothing else: no other words before or after it. "
        f"It must fit this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )


def as_text(response: ModelResponse) -> ModelResponse:
    """`response` with an answer that came as a tool call put into words.

    A call without an answer is an error in most protocols, and a tool that the next model does not have in some.
    Other calls beside the answer are dropped: the model is done.
    """
    from pydantic_ai.messages import TextPart, ToolCallPart

    answers = [each for each in response.tool_calls if each.tool_name == _NAME]
    if not answers:
        return response
    kept = [part for part in response.parts if not isinstance(part, ToolCallPart | TextPart)]
    return dataclasses.replace(response, parts=[*kept, TextPart(content=answers[0].args_as_json_str())])


def sent_back(problem: str) -> str:
    """What the model is sent about an answer that is not as asked."""
    return f"{problem}\nGive the whole answer again, corrected."


@dataclass(frozen=True, slots=True)
class ModelReply:
    text: str
    output: Any


class ModelExchange:
    """Holds what was said. The models behind `asking` may change on the way; what was said stays."""

    def __init__(
        self,
        request: Request,
        settings: Llm,
        *,
        asking: Asking,
        account: CallAccount,
        toolbox: SessionTools,
        transcript: Transcript,
        secrets: HiddenKeys,
        earlier: LlmConversation,
    ) -> None:
        from pydantic_ai.messages import ModelRequest

        self._request = request
        self._settings = settings
        self._asking = asking
        self._account = account
        self._toolbox = toolbox
        self._transcript = transcript
        self._secrets = secrets
        self._system = earlier.system if request.system is None else request.system
        self._messages = [*earlier.messages, ModelRequest.user_text_prompt(request.prompt)]

    @property
    def conversation(self) -> LlmConversation:
        return LlmConversation(self._system, self._messages)

    async def run(self) -> ModelReply:
        """The answer that the request wants. Raises `CallFault`."""
        repairs = 0
        most = self._settings.repairs if self._request.repairs is None else self._request.repairs
        for _ in range(self._settings.turns):
            response = as_text(await self._asking.ask(self._question))
            self._messages.append(response)
            if response.tool_calls:
                await self._use_tools(response.tool_calls)
                continue
            try:
                return self._answer(response)
            except NotAnAnswer as problem:
                if repairs == most:
                    raise CallFault(
                        Failure.BAD_OUTPUT,
                        f"{self._asking.current.name} gave no usable answer in {repairs + 1} tries: {problem}",
                        hint="raise llm.repairs, fix the schema, or use a stronger model",
                    ) from None
                repairs += 1
                self._send_back(problem)
        raise CallFault(
            Failure.BAD_OUTPUT,
            f"{self._asking.current.name} gave no answer in {self._settings.turns} turns",
            hint="raise llm.turns, or ask for less",
        )

    def _question(self, candidate: ModelCandidate, model: Model) -> ModelQuestion:
        from pydantic_ai.messages import InstructionPart
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        tools = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=copy.deepcopy(dict(tool.input_schema)),
                strict=False,
            )
            for tool in self._toolbox.tools.values()
        ]
        system = [InstructionPart(content=self._system)] if self._system else []
        parameters = ModelRequestParameters(function_tools=tools, instruction_parts=system)
        schema = self._request.output_schema
        if schema is not None:
            parameters = with_schema(parameters, schema, way_for(candidate, model, schema))
        return ModelQuestion(list(self._messages), parameters, self._model_settings(candidate))

    def _model_settings(self, candidate: ModelCandidate) -> ModelSettings:
        asked = self._request
        bounds = (self._settings.output_tokens, asked.output_tokens, self._account.output_tokens(candidate))
        most = min((each for each in bounds if each is not None), default=None)
        settings: ModelSettings = {} if most is None else {"max_tokens": most}
        if asked.temperature is not None:
            settings["temperature"] = asked.temperature
        return settings

    async def _use_tools(self, calls: Sequence[ToolCallPart]) -> None:
        """One after the other: what a tool does may depend on the one before."""
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        results = []
        for call in calls:
            arguments = self._secrets.hide(call.args_as_json_str())
            self._transcript.say(EventKind.TOOL_CALL, call.tool_name, {"arguments": arguments})
            result = await self._toolbox.use(call)
            self._transcript.say(EventKind.TOOL_RESULT, self._secrets.hide(result), {"tool": call.tool_name})
            results.append(ToolReturnPart(call.tool_name, result, tool_call_id=call.tool_call_id))
        self._messages.append(ModelRequest(parts=results))

    def _answer(self, response: ModelResponse) -> ModelReply:
        text = self._secrets.hide(response.text or "")
        if self._request.output_schema is None:
            if not text.strip():
                raise NotAnAnswer("the answer is empty")
            return ModelReply(text, None)
        return ModelReply(text, parse_answer(text, self._request.output_schema))

    def _send_back(self, problem: NotAnAnswer) -> None:
        from pydantic_ai.messages import ModelRequest

        self._messages.append(ModelRequest.user_text_prompt(sent_back(str(problem))))
        self._transcript.say(EventKind.NOTE, f"sent back: {problem}")
