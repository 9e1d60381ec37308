"""Where packages come from on this machine: the variables that say so, the files that they name, and a pip."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# Where packages come from and how they are reached; not where they go, and no tokens for publishing.
_NAMES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_TRUSTED_HOST"),
    *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CONSTRAINT"),
    *("PIP_CONFIG_FILE", "PIP_ONLY_BINARY", "PIP_PREFER_BINARY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)


def source_variables(ours: Mapping[str, str], *more: str) -> dict[str, str]:
    """Those of our variables that an installer needs, and `more` of them by name."""
    return {name: ours[name] for name in (*_NAMES, *more) if name in ours}


def named_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """What the variables name on this machine, such as a directory of packages."""
    words = (Path(word.removeprefix("file://")) for value in environment.values() for word in value.split())
    return tuple(
        path
        for path in words
        if path.is_absolute() and path != Path("/") and ".." not in path.parts and path.exists()
    )


def own_pip(python: str) -> list[str] | None:
    """The pip that Python carries with it, which runs without being installed."""
    wheels = [wheel for place in _wheel_places() for wheel in sorted(place.glob("pip-*.whl"))]
    if wheels:
        return [python, "-I", f"{wheels[-1]}/pip"]
    return None


def _wheel_places() -> list[Path]:
    """Where a Python keeps the wheel of its pip: inside `ensurepip`, or where a distribution has put it instead."""
    carried = find_spec("ensurepip")
    told = sysconfig.get_config_var("WHEEL_PKG_DIR")
    inside = [] if carried is None or carried.origin is None else [Path(carried.origin).parent / "_bundled"]
    return [*([Path(told)] if told else []), *inside]
