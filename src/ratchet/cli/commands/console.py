"""`ratchet console`"""

from __future__ import annotations

import ipaddress
import webbrowser

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm
from ratchet.cli.session import Session
from ratchet.config import Loaded
from ratchet.kernel import Missing
from ratchet.server.token import find_token

_PATIENCE_SECONDS = 3.0


@command(examples=["ratchet console", "ratchet console --open"], see=["serve"])
@click.option("--open", "show", is_flag=True, help="Open it in the browser as well.")
@click.pass_obj
def console(session: Session, show: bool) -> None:
    """Print a link into the console of the server that works on this home.

    The link has the token in it: whoever has it can do what you can. The server must be running (`ratchet serve`), on
    the address and port of the settings server.host and server.port.
    """
    loaded = session.load()
    url = _address(loaded)
    _ask(url)
    link = find_token(loaded).link(url)
    confirm(session, {"url": f"{url}/console/", "link": link}, link)
    if show:
        webbrowser.open(link)


def _address(loaded: Loaded) -> str:
    host, port = loaded.settings.server.host, loaded.settings.server.port
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"


def _ask(url: str) -> None:
    """Raises `Missing` if no server answers there."""
    import urllib.request

    try:
        with urllib.request.urlopen(f"{url}/health/live", timeout=_PATIENCE_SECONDS):
            return
    except OSError as error:
        raise Missing(
            f"no server answers at {url}: {getattr(error, 'reason', error)}",
            hint="start one with `ratchet serve`; it is looked for at server.host and server.port",
        ) from error
