"""The improvement certificate: everything that a decision stands on, so that anybody can make it again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ratchet.judges.comparison import average
from ratchet.judges.reports import finite
from ratchet.kernel import Direction, Misuse, RatchetError, Usage
from ratchet.research.adapter import KeepRule
from ratchet.research.decision.outcome import Champion, Decided, Noise, Phase, Side
from ratchet.research.decision.rule import VOID_ROUNDS, Ask, DecisionCase, deciding, run_level

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from ratchet.ledger.trials import Trial

KEY_FILE = "certificate.key"


class KeyUnreadable(RatchetError):
    """The key of the home is not there, or is none."""


class CertificateKey:
    """The Ed25519 key in `KEY_FILE` of a home, made when it is first needed. Only its owner can read the file."""

    def __init__(self, home: Path) -> None:
        """Raises `KeyUnreadable`."""
        path = home / KEY_FILE
        try:
            if not path.exists():
                _create(path)
            self._key = _private(bytes.fromhex(path.read_text().strip()))
        except (OSError, ValueError) as error:
            raise KeyUnreadable(
                f"the key for certificates cannot be kept in {path}: {error}",
                hint="make it readable and writable for this user, or restore it from a backup",
            ) from error

    @property
    def public(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, text: str) -> str:
        return self._key.sign(text.encode()).hex()


def is_signed(text: str, signature: object, public: object) -> bool:
    """Whether `signature` is that of `text` by the owner of the key `public`. Whatever is given, it only answers."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(signature, str) or not isinstance(public, str):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), text.encode())
    except (ValueError, InvalidSignature):
        return False
    return True


def _private(content: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(content)


def _create(path: Path) -> None:
    """Processes that start at once on one home agree on one key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".certificate-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(32).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        Path(temporary).unlink()


FORMAT = "ratchet improvement certificate 1"
SIGNED_FORMAT = "ratchet improvement certificate 2"


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
    run: Mapping[str, Any] | None = None,
    key: CertificateKey | None = None,
) -> dict[str, Any]:
    """Certify a decision. `parent` is the commit that the challenger was made from, `evaluator` the meter's hash.

    `run` has the `keeps` before it and how many trials were `planned`, where it is one of a run. `environment` says
    where it was measured. Times are milliseconds since 1970. The answer is plain JSON and ends with
    the SHA-256 of all the rest, signed with `key`. Raises `Misuse` for what JSON cannot hold.
    """
    content = {
        "format": FORMAT if key is None else SIGNED_FORMAT,
        **({} if key is None else {"signed_by": key.public}),
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
        "measurements": [asdict(each) | {"held_out": each.held_out} for each in decided.taken],
        **({} if run is None else {"run": dict(run)}),
        "cost": asdict(usage),
        "session": session,
        "started_at": started_at,
        "ended_at": ended_at,
    }
    try:
        plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Misuse(f"the certificate of {decided.commit} cannot be written as JSON: {error}") from None
    sha256 = content_hash(plain)
    return {**plain, "sha256": sha256, **({} if key is None else {"signature": key.sign(sha256)})}


def certificate_json(certificate: Mapping[str, Any]) -> bytes:
    """A certificate as it is stored: the same bytes for the same content."""
    text = json.dumps(certificate, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def content_hash(content: Mapping[str, Any]) -> str:
    """The SHA-256 over all of a certificate but its own hash and the signature of that."""
    rest = {name: value for name, value in content.items() if name not in ("sha256", "signature")}
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
            **({} if decided.level is None else {"level": decided.level, "estimate": decided.estimate}),
        },
        "held_out": None if decided.held_out is None else asdict(decided.held_out),
    }


# Another machine's libraries may differ in the last digits of a p-value.
_CLOSE = 1e-9


class Contradiction(Exception):
    """A certificate and its own measurements do not agree."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A measurement of a certificate, as far as the decision hangs on it."""

    side: Side
    phase: Phase
    held_out: bool
    commit: str
    seed: int
    score: float | None


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """The parts of a certificate that a decision is made of."""

    trial: Annotated[int, Field(ge=0, lt=2**63)]
    commit: str
    parent: str
    diff_sha256: str
    evaluator: str
    policy: str
    rule: KeepRule
    direction: Direction
    noise: Noise
    champion: Champion
    measurements: list[_Stored]
    cost: Usage
    started_at: int
    ended_at: int
    run: _RunSoFar | None = None


@dataclass(frozen=True, slots=True)
class _RunSoFar:
    """What the level of a decision follows from."""

    keeps: Annotated[int, Field(ge=0, lt=2**63)]
    planned: Annotated[int, Field(ge=1, lt=2**63)] | None
    id: int | None = None


def _level(read: StoredCertificate) -> float | None:
    if read.run is None:
        return None
    return run_level(read.rule.alpha, read.trial, keeps=read.run.keeps, planned=read.run.planned)


@cache
def _reader() -> TypeAdapter[StoredCertificate]:
    return TypeAdapter(StoredCertificate)


def check_certificate(content: Mapping[str, Any]) -> list[str]:
    """Everything in a certificate that contradicts itself; nothing when it holds. Whatever is given, it only answers.

    It proves that the decision follows from the measurements, not that they were taken: for that, measure the commits
    again with the evaluator of that hash.
    """
    if content.get("format") not in (FORMAT, SIGNED_FORMAT):
        return [f"the format is {content.get('format')!r}, not {SIGNED_FORMAT!r}"]
    try:
        read = read_certificate(content)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return [f"it cannot be read: {'; '.join(wrong)}"]
    except (TypeError, ValueError, RecursionError, Misuse) as error:
        return [f"it cannot be read: {error}"]
    return [*_check_facts(content, read), *_check_ruling(content, read)]


def read_certificate(content: Mapping[str, Any]) -> StoredCertificate:
    """What a decision is made of. Raises `ValueError`, `TypeError`, `RecursionError` or `Misuse` for what is none."""
    return _reader().validate_json(json.dumps(dict(content), allow_nan=False), strict=True)


def bound_to(content: Mapping[str, Any], trial: Trial) -> list[str]:
    """What in a certificate is not as the row of its trial has it."""
    record = trial.measurements if isinstance(trial.measurements, dict) else {}
    wanted = {
        "trial": trial.number,
        "commit": trial.commit,
        "evaluator": trial.evaluator,
        "score": trial.score,
        "status": None if trial.status is None else str(trial.status),
    }
    problems = [
        f"{name} is {content.get(name)!r}, but the ledger has {value!r}"
        for name, value in wanted.items()
        if content.get(name) != value
    ]
    known = record.get("environment")
    if known is not None and known != environment_hash(content.get("environment")):
        problems.append("the environment is not the one that the ledger has")
    return problems


def environment_hash(environment: object) -> str:
    """What stands for an environment in the row of a trial."""
    return hashlib.sha256(json.dumps(environment, sort_keys=True, default=str).encode()).hexdigest()


def _check_facts(content: Mapping[str, Any], read: StoredCertificate) -> list[str]:
    said = {
        "the hash is not that of the content": content.get("sha256") != _hash(content),
        "the policy is not that of the rule": read.policy != read.rule.policy,
        "the commit is its own parent": read.commit == read.parent,
        "it ended before it started": read.ended_at < read.started_at,
        "the champion's score is not the mean of its samples": not _is_mean(read.champion),
        "it names no evaluator": not read.evaluator,
        "it names no change": not read.diff_sha256,
        "the signature is not that of the key it names": content.get("format") == SIGNED_FORMAT
        and not is_signed(_hash(content) or "", content.get("signature"), content.get("signed_by")),
    }
    return [problem for problem, found in said.items() if found]


def _check_ruling(content: Mapping[str, Any], read: StoredCertificate) -> list[str]:
    try:
        decided = _decided_again(read)
    except (Contradiction, Misuse) as error:
        return [str(error)]
    return [
        f"{name} is {content.get(name)!r}, but the measurements give {value!r}"
        for name, value in ruling_json(decided).items()
        if not _same(content.get(name), value)
    ]


def _decided_again(read: StoredCertificate) -> Decided:
    """Make the decision with the stored scores. Raises `Contradiction` where they are not those it asks for."""
    if sum(each.score is None for each in read.measurements) >= VOID_ROUNDS:
        raise Contradiction("the champion failed too often for anything to be decided")
    steps = deciding(
        DecisionCase(
            read.commit, read.champion, read.rule, read.direction, read.noise, read.trial, _level(read)
        )
    )
    left = deque(read.measurements)
    ask = next(steps)
    while True:
        scores = _stored(ask, left, {Side.CHALLENGER: read.commit, Side.CHAMPION: read.champion.commit})
        try:
            ask = steps.send(scores)
        except StopIteration as ruled:
            if left:
                raise Contradiction(f"{len(left)} measurements were taken after it was decided") from None
            decided: Decided = ruled.value
            return decided


def _stored(ask: Ask, left: deque[_Stored], commits: Mapping[Side, str]) -> dict[Side, float]:
    scores: dict[Side, float] = {}
    for side in ask.sides:
        wanted = f"the {side} with seed {ask.seed} ({ask.phase})"
        if not left:
            raise Contradiction(f"there is no measurement of {wanted}, so nothing was decided yet")
        found = left.popleft()
        split = ask.phase is Phase.HELD_OUT
        if (found.side, found.phase, found.seed, found.held_out) != (side, ask.phase, ask.seed, split):
            raise Contradiction(
                f"where {wanted} was to be measured, there is the {found.side} with seed {found.seed} ({found.phase})"
            )
        if found.commit != commits[side]:
            raise Contradiction(f"for {wanted} the commit {found.commit} was measured, not {commits[side]}")
        if found.score is None and side is Side.CHAMPION:
            break
        score = finite(found.score)
        if score is None:
            raise Contradiction(f"{wanted} has the score {found.score!r}, which is no finite number")
        scores[side] = score
    return scores


def _is_mean(champion: Champion) -> bool:
    return bool(champion.samples) and _same(average(champion.samples), champion.score)


def _hash(content: Mapping[str, Any]) -> str | None:
    try:
        return content_hash(content)
    except (TypeError, ValueError, RecursionError):
        return None


def _same(one: Any, other: Any) -> bool:
    """Equal, numbers as nearly as machines agree."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in other)
    if isinstance(one, list | tuple) and isinstance(other, list):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-12 * _CLOSE)
    return bool(one == other and isinstance(one, bool) == isinstance(other, bool))
