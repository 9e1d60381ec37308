"""Errors in the shape of OpenAI."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.modelserver.wire import Document

# Status to the usual type, code and message.
_USUAL: Mapping[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The request is invalid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("permission_error", None, "You do not have access to this model."),
    404: (
        "invalid_request_error",
        "model_not_found",
        "The model does not exist or you do not have access to it.",
    ),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}
# Codes that are a type of their own.
_KINDS = frozenset({"insufficient_quota", "usage_limit_reached", "usage_not_included"})
_OTHER = ("server_error", None, "The request failed.")


def openai_error(status: int, code: str | None, message: str | None) -> Document:
    """The body of an error, with what is usual for `status` where nothing is given."""
    kind, usual_code, usual_message = _USUAL.get(status, _OTHER)
    return {
        "error": {
            "message": message or (f"scripted failure: {code}" if code else usual_message),
            "type": code if code in _KINDS else kind,
            "param": None,
            "code": code or usual_code,
        }
    }
