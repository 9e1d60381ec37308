"""Keeping a proxy away from what is on this machine."""

from __future__ import annotations

from collections.abc import Mapping

_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_LOOPBACK = "127.0.0.1"


def past_the_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that let a session reach servers of this machine, where it has a proxy for everything else."""
    if not any(environment.get(name) for name in _PROXIES):
        return {}
    listed = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    value = listed if _LOOPBACK in listed.split(",") else ",".join(filter(None, (listed, _LOOPBACK)))
    return {"NO_PROXY": value, "no_proxy": value}
