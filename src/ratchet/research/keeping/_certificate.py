"""The improvement certificate: everything that a decision stands on, so that anybody can make it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ratchet.kernel import Direction, Misuse, Usage
from ratchet.research.adapter import KeepRule
from ratchet.research.keeping.decided import Champion, Decided, Taken
from ratchet.research.keeping.noise import Noise

FORMAT = "ratchet improvement certificate 1"


def certificate(
    decided: Decided,
    *,
    champion: Champion,
    rule: KeepRule,
    direction: Direction,
    noise: Noise,
    trial: int,
    parent: str,
    diff_sha256: str,
    evaluator: str,
    environment: Mapping[str, Any],
    usage: Usage,
    session: int | str | None,
    started_at: int,
    ended_at: int,
) -> dict[str, Any]:
    """Certify a decision. `parent` is the commit that the challenger was made from, `evaluator` the meter's hash.

    `environment` says where it was measured. Times are milliseconds since 1970. The answer is plain JSON and ends with
    the SHA-256 of all the rest. Raises `Misuse` for what JSON cannot hold.
    """
    content = {
        "format": FORMAT,
        "trial": trial,
        "commit": decided.commit,
        "parent": parent,
        "diff_sha256": diff_sha256,
        "evaluator": evaluator,
        "environment": dict(environment),
        "policy": rule.policy,
        "rule": asdict(rule),
        "direction": str(direction),
        "noise": asdict(noise),
        "champion": asdict(champion),
        **_ruling(decided),
        "measurements": [_measurement(each) for each in decided.taken],
        "cost": asdict(usage),
        "session": session,
        "started_at": started_at,
        "ended_at": ended_at,
    }
    try:
        plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Misuse(f"the certificate of {decided.commit} cannot be written as JSON: {error}") from None
    return {**plain, "sha256": content_hash(plain)}


def certificate_json(certificate: Mapping[str, Any]) -> bytes:
    """A certificate as it is stored: the same bytes for the same content."""
    text = json.dumps(certificate, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def content_hash(content: Mapping[str, Any]) -> str:
    """The SHA-256 over all of a certificate but its own hash."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def ruling_json(decided: Decided) -> dict[str, Any]:
    """What was decided, as a certificate has it."""
    ruling: dict[str, Any] = json.loads(json.dumps(_ruling(decided)))
    return ruling


def _ruling(decided: Decided) -> dict[str, Any]:
    return {
        "status": str(decided.status),
        "score": decided.score,
        "samples": decided.samples,
        "seeds": decided.seeds,
        "against": decided.against,
        "delta": decided.delta,
        "compared_to": decided.compared_to,
        "reason": decided.reason,
        "test": {
            "name": decided.test,
            "p_value": decided.p_value,
            "low": decided.low,
            "high": decided.high,
            "looks": [asdict(each) for each in decided.looks],
        },
        "held_out": None if decided.held_out is None else asdict(decided.held_out),
    }


def _measurement(taken: Taken) -> dict[str, Any]:
    return {
        "side": str(taken.side),
        "phase": str(taken.phase),
        "held_out": taken.held_out,
        "commit": taken.commit,
        "seed": taken.seed,
        "score": taken.score,
        "problem": taken.problem,
        "measurements": dict(taken.measurements),
        "wall_ms": taken.wall_ms,
        "facts": dict(taken.facts),
    }
