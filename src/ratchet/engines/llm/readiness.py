"""Looking whether a model could be asked, without paying for an answer: endpoints tell which models they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ratchet.engines.engine import Readiness
from ratchet.engines.llm.choice import Candidate
from ratchet.engines.llm.connection import http_client
from ratchet.engines.secrets import Secrets

if TYPE_CHECKING:
    import httpx2

_SECONDS = 5.0


async def readiness(candidates: Sequence[Candidate], environment: Mapping[str, str]) -> Readiness:
    """Ready when one of the models is; the others are named, each with what is the matter."""
    async with http_client(_SECONDS) as http:
        looks = [await _look(each, environment, http) for each in candidates]
    detail = "; ".join(look.detail for look in looks)
    if any(look.ready for look in looks):
        return Readiness(True, detail)
    return Readiness(False, detail, looks[0].mend)


async def _look(candidate: Candidate, environment: Mapping[str, str], http: httpx2.AsyncClient) -> Readiness:
    import httpx2

    variable, name = candidate.key_variable, candidate.name
    key = candidate.key_in(environment)
    if variable and not key:
        return Readiness(False, f"{name}: {variable} is not set", f"export {variable}=…")
    try:
        answer = await http.get(_models_url(candidate), headers=_headers(candidate, key))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        told = Secrets([key]).hide(f"{type(error).__name__}: {error}")
        return Readiness(
            False,
            f"{name}: {candidate.url} cannot be reached ({told})",
            "start the endpoint, or mend its base_url",
        )
    if answer.status_code in (401, 403):
        mend = f"put a valid key into {variable}" if variable else "set key_variable of the endpoint"
        return Readiness(False, f"{name}: the key is refused (HTTP {answer.status_code})", mend)
    models = _models(answer)
    if candidate.endpoint.kind == "ollama" and models is not None and not _has(models, candidate.model):
        return Readiness(False, f"{name}: Ollama does not have this model", f"ollama pull {candidate.model}")
    listed = "" if models is not None and candidate.model in models else " (it does not list this model)"
    return Readiness(True, f"{name}: {candidate.url} answers{listed}")


def _models_url(candidate: Candidate) -> str:
    return (
        f"{candidate.url}/v1/models" if candidate.endpoint.kind == "anthropic" else f"{candidate.url}/models"
    )


def _headers(candidate: Candidate, key: str) -> dict[str, str]:
    if not key:
        return {}
    if candidate.endpoint.kind == "anthropic":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"authorization": f"Bearer {key}"}


def _models(answer: httpx2.Response) -> set[str] | None:
    """The models that the endpoint lists, if it does."""
    try:
        return {str(each["id"]) for each in answer.json()["data"]}
    except (ValueError, KeyError, TypeError):
        return None


def _has(models: set[str], wanted: str) -> bool:
    # Ollama calls the model `qwen3` also `qwen3:latest`.
    return wanted in models or f"{wanted}:latest" in models
