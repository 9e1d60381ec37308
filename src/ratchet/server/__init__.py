"""The HTTP face: the API, and `serve`, which runs it beside a worker in one process."""

from ratchet.server.app import create_app
from ratchet.server.serving import Serving, serve
from ratchet.server.token import Token, find_token

__all__ = ["Serving", "Token", "create_app", "find_token", "serve"]
