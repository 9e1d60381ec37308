"""`ratchet console`"""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm
from ratchet.cli.params import PORT
from ratchet.kernel import Missing
from ratchet.runtime.addresses import ServerAddress, server_addresses
from ratchet.server.token import Token, find_token

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.config import Loaded

_PATIENCE_SECONDS = 10.0


@command(examples=["ratchet console", "ratchet console --open", "ratchet console --port 8485"], see=["serve"])
@click.option("--port", type=PORT, metavar="PORT", help="The port of one of several servers.")
@click.option("--open", "show", is_flag=True, help="Open it in the browser as well.")
def console(session: CliSession, port: int | None, show: bool) -> None:
    """Print a link into the console of the server that works on this home.

    The link has the token in it: anyone who has it can do what you can. The server must be running (`ratchet serve`).
    Of several the one that was started last is meant; --port names another. Where none of this home runs here, the
    address and port of the settings server.host and server.port are tried.
    """
    loaded = session.load({"server.port": port})
    url, token = _address(loaded, port).url, find_token(loaded)
    _ask(url, token)
    link = token.link(url)
    confirm(session, {"url": f"{url}/console/", "link": link}, link)
    if show:
        webbrowser.open(link)


def _address(loaded: Loaded, port: int | None) -> ServerAddress:
    found = [each for each in server_addresses(loaded.home) if port in (None, each.port)]
    return found[0] if found else ServerAddress(loaded.settings.server.host, loaded.settings.server.port)


def _ask(url: str, token: Token) -> None:
    """Raises `Missing` if no server answers there, or one that does not take the token."""
    import urllib.error
    import urllib.request

    asked = urllib.request.Request(f"{url}/runs?limit=1", headers={"Authorization": f"Bearer {token.value}"})
    try:
        with urllib.request.urlopen(asked, timeout=_PATIENCE_SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise Missing(
            f"the server at {url} does not take the token of this home: it answers {error.code}",
            hint="it works on another home; start one here with `ratchet serve`",
        ) from error
    except OSError as error:
        raise Missing(
            f"no server answers at {url}: {getattr(error, 'reason', error)}",
            hint="start one with `ratchet serve`, or name the port of one that runs with --port",
        ) from error
