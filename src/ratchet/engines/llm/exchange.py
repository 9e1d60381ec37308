"""One session with a model: turn after turn until there is an answer that can be used."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.config.llm_settings import Llm
from ratchet.engines.answer import NotAnAnswer, parse_answer
from ratchet.engines.failure import Failure
from ratchet.engines.llm.account import Account
from ratchet.engines.llm.asking import Asking
from ratchet.engines.llm.call import Question
from ratchet.engines.llm.choice import Candidate
from ratchet.engines.llm.conversation import Conversation
from ratchet.engines.llm.fault import CallFault
from ratchet.engines.llm.structure import as_text, sent_back, way_for, with_schema
from ratchet.engines.llm.tools import Toolbox
from ratchet.engines.secrets import Secrets
from ratchet.engines.session import EventKind, Request
from ratchet.engines.transcript import Transcript

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    output: Any


class Exchange:
    """Holds what was said. The models behind `asking` may change on the way; what was said stays."""

    def __init__(
        self,
        request: Request,
        settings: Llm,
        *,
        asking: Asking,
        account: Account,
        toolbox: Toolbox,
        transcript: Transcript,
        secrets: Secrets,
        earlier: Conversation,
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
    def conversation(self) -> Conversation:
        return Conversation(self._system, self._messages)

    async def run(self) -> Answer:
        """The answer that the request wants. Raises `CallFault`."""
        repairs = 0
        for _ in range(self._settings.turns):
            response = as_text(await self._asking.ask(self._question))
            self._messages.append(response)
            if response.tool_calls:
                await self._use_tools(response.tool_calls)
                continue
            try:
                return self._answer(response)
            except NotAnAnswer as problem:
                if repairs == self._settings.repairs:
                    raise CallFault(
                        Failure.BAD_OUTPUT,
                        f"{self._asking.current.name} gave no usable answer in {repairs + 1} tries: {problem}",
                        hint="raise llm.repairs, mend the schema, or use a stronger model",
                    ) from None
                repairs += 1
                self._send_back(problem)
        raise CallFault(
            Failure.BAD_OUTPUT,
            f"{self._asking.current.name} gave no answer in {self._settings.turns} turns",
            hint="raise llm.turns, or ask for less",
        )

    def _question(self, candidate: Candidate, model: Model) -> Question:
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
        return Question(list(self._messages), parameters, self._model_settings(candidate))

    def _model_settings(self, candidate: Candidate) -> ModelSettings:
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

    def _answer(self, response: ModelResponse) -> Answer:
        text = self._secrets.hide(response.text or "")
        if self._request.output_schema is None:
            if not text.strip():
                raise NotAnAnswer("the answer is empty")
            return Answer(text, None)
        return Answer(text, parse_answer(text, self._request.output_schema))

    def _send_back(self, problem: NotAnAnswer) -> None:
        from pydantic_ai.messages import ModelRequest

        self._messages.append(ModelRequest.user_text_prompt(sent_back(str(problem))))
        self._transcript.say(EventKind.NOTE, f"sent back: {problem}")
