"""The connection to an endpoint: its HTTP client, its rate limits, and the model behind it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import math
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from ratchet.config.engine_settings import EndpointSettings
from ratchet.engines.llm.choice import ModelCandidate
from ratchet.engines.providers import PROVIDERS

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model
    from pydantic_ai.profiles import ModelProfile


_CONNECT_SECONDS = 10.0
# What one answer may bring; an endpoint that sends for ever would otherwise fill the memory.
_LARGEST = 64 * 1024 * 1024
# The SDKs want a key and would look for one in the environment; endpoints that need none ignore this one.
_NO_KEY = "none"


_MODULES = {
    "openai": "pydantic_ai.models.openai",
    "anthropic": "pydantic_ai.models.anthropic",
    "ollama": "pydantic_ai.models.ollama",
}


async def load_libraries(candidates: Iterable[ModelCandidate]) -> None:
    """Import what these models need, in a thread: it takes seconds that other work in this loop should not wait for."""
    for kind in {each.endpoint.kind for each in candidates}:
        # What is missing is told when that model is asked.
        with contextlib.suppress(ImportError):
            await asyncio.to_thread(importlib.import_module, _MODULES[kind])


def http_client(call_seconds: float) -> httpx2.AsyncClient:
    """A client for one session. It follows no redirects: the key would go to wherever an endpoint points."""
    import httpx2

    return httpx2.AsyncClient(
        verify=_ssl_context(),
        timeout=httpx2.Timeout(call_seconds, connect=min(_CONNECT_SECONDS, call_seconds)),
        follow_redirects=False,
        event_hooks={"response": [_bound]},
    )


def model_at(candidate: ModelCandidate, key: str, http: httpx2.AsyncClient) -> Model:
    """The model of `candidate`, reached through `http` and without retries of its own."""
    if candidate.endpoint.kind == "anthropic":
        return _anthropic(candidate, key or _NO_KEY, http)
    return _openai(candidate, key or _NO_KEY, http)


def _openai(candidate: ModelCandidate, key: str, http: httpx2.AsyncClient) -> Model:
    from openai import AsyncOpenAI
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles import merge_profile
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client = AsyncOpenAI(api_key=key, base_url=candidate.url, http_client=http, max_retries=0)
    _forget_environment(client)
    # Without it a stream that breaks off between two events would count as a whole answer.
    whole = merge_profile(
        OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True), _profile(candidate)
    )
    if candidate.endpoint.kind == "ollama":
        provider = OllamaProvider(openai_client=client)
        # Given a profile, the class would not look any more whether the model runs in Ollama's cloud.
        found = OllamaModel(candidate.model, provider=provider).profile
        return OllamaModel(candidate.model, provider=provider, profile=merge_profile(found, whole))
    if candidate.url == PROVIDERS["openai"].url:
        return OpenAIChatModel(candidate.model, provider=OpenAIProvider(openai_client=client), profile=whole)
    compatible = OpenAICompatibleProvider(candidate.place, openai_client=client)
    return OpenAIChatModel(candidate.model, provider=compatible, profile=whole)


def _anthropic(candidate: ModelCandidate, key: str, http: httpx2.AsyncClient) -> Model:
    # Another second of importing, for those who use it.
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=key, base_url=candidate.url, http_client=http, max_retries=0, open_telemetry=False
    )
    _forget_environment(client)
    return AnthropicModel(
        candidate.model, provider=AnthropicProvider(anthropic_client=client), profile=_profile(candidate)
    )


def _profile(candidate: ModelCandidate) -> ModelProfile:
    """What the settings say about the model, which is stronger than what the library believes about its name."""
    return {"supports_json_schema_output": True} if candidate.endpoint.structured == "native" else {}


def _forget_environment(client: Any) -> None:
    """Drop what an SDK took from the variables of this process: it was meant for its maker, not for this endpoint."""
    client._custom_headers = {}
    for name in ("organization", "project"):
        if hasattr(client, name):
            setattr(client, name, None)


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Loading the certificates takes longer than everything else that a session needs."""
    import httpx2

    return httpx2.create_ssl_context()


async def _bound(response: httpx2.Response) -> None:
    """Break off an answer that grows too large."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: httpx2.AsyncByteStream) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._inner:
                size += len(chunk)
                if size > _LARGEST:
                    raise httpx2.ReadError(f"the answer is larger than {_LARGEST} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = Bounded(response.stream)


_MINUTE = 60.0
# An endpoint that asks for a year is asked again sooner.
_LONGEST_PAUSE = 600.0


class Closed(Exception):
    """The endpoint asked for a pause that is longer than the caller wants to wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it asked for a pause of {seconds:.0f} s")
        self.seconds = seconds


class _Waiter:
    """One caller in the queue, woken from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed, so no task waits there any more
            self._loop.call_soon_threadsafe(self._woken.set)

    async def sleep(self, seconds: float) -> None:
        """Until woken, at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                await self._woken.wait()
        self._woken.clear()


class Gate:
    def __init__(self, endpoint: EndpointSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = endpoint
        self._clock = clock
        self._open = 0
        self._begun: deque[float] = deque()
        self._used: deque[tuple[float, int]] = deque()
        self._closed_until = -math.inf
        self._queue: deque[_Waiter] = deque()
        # Sessions run in several threads; every field above changes only under it.
        self._lock = threading.Lock()

    @contextlib.asynccontextmanager
    async def passing(self, patience: float) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the block. Raises `Closed` rather than wait out a long pause."""
        await self._enter(patience)
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._wake_first()

    def used(self, tokens: int) -> None:
        """Tell how many tokens a call took."""
        if self._limits.tokens_per_minute is not None:
            with self._lock:
                self._used.append((self._clock(), tokens))

    def close_for(self, seconds: float) -> None:
        """Let no call pass for a while: the endpoint asked for it."""
        with self._lock:
            self._closed_until = max(self._closed_until, self._clock() + min(seconds, _LONGEST_PAUSE))
            # The first may not want to wait that long; leaving, it wakes the one behind it.
            self._wake_first()

    async def _enter(self, patience: float) -> None:
        waiter = _Waiter()
        with self._lock:
            self._queue.append(waiter)
        try:
            while True:
                with self._lock:
                    pause = self._pause(waiter, patience)
                    if pause == 0:
                        self._open += 1
                        self._begin()
                        return
                await waiter.sleep(pause)
        finally:
            with self._lock:
                self._queue.remove(waiter)
                self._wake_first()

    def _pause(self, waiter: _Waiter, patience: float) -> float:
        """How long `waiter` still has to wait; for ever means until it is woken."""
        now = self._clock()
        closed = self._closed_until - now
        if closed > patience:
            raise Closed(closed)
        if self._queue[0] is not waiter or self._open >= self._limits.concurrency:
            return math.inf
        return max(0.0, closed, self._until_rate(now))

    def _until_rate(self, now: float) -> float:
        limits = self._limits
        if limits.requests_per_minute is not None:
            while self._begun and self._begun[0] <= now - _MINUTE:
                self._begun.popleft()
            if len(self._begun) >= limits.requests_per_minute:
                return self._begun[0] + _MINUTE - now
        if limits.tokens_per_minute is not None:
            while self._used and self._used[0][0] <= now - _MINUTE:
                self._used.popleft()
            if sum(tokens for _, tokens in self._used) >= limits.tokens_per_minute:
                return self._used[0][0] + _MINUTE - now
        return 0.0

    def _begin(self) -> None:
        if self._limits.requests_per_minute is not None:
            self._begun.append(self._clock())

    def _wake_first(self) -> None:
        if self._queue:
            self._queue[0].wake()


_gates: dict[tuple[str, EndpointSettings], Gate] = {}
# Two sessions that ask for a new gate at once must get the same one.
_gates_lock = threading.Lock()


def gate_of(url: str, endpoint: EndpointSettings) -> Gate:
    """The one gate that this process has for an endpoint with these limits."""
    with _gates_lock:
        return _gates.setdefault((url, endpoint), Gate(endpoint))
