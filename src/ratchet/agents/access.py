"""Who may use an agent, what its servers may connect to, and the secrets that they are given."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import re
import secrets
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from ratchet.agents.contract import Role
from ratchet.agents.operations import AgentName
from ratchet.config.redaction import remember_secret
from ratchet.kernel import Misuse, RatchetError
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger import agent_access as rows
from ratchet.ledger.agents import AgentRow, get_agent
from ratchet.operations import Listing, Param, described, line_of, operation
from ratchet.runtime.call import Call

if TYPE_CHECKING:
    from ratchet.agents.gateway import AgentRoute
    from ratchet.runtime import Runtime


class KeyNeeded(RatchetError):
    """No token was brought that opens this."""

    http_status = 401


class KeyTooNarrow(RatchetError):
    """The key is one of this agent, and opens less."""

    http_status = 403


class KeyScope(StrEnum):
    """What a key opens: the tools of the Runner, feedback, or everything of its agent."""

    CALL = "call"
    FEEDBACK = "feedback"
    ADMIN = "admin"


_KEY = re.compile(r"rk_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})", re.ASCII)
_NOBODYS = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who brought a key: it opens one agent, within its scopes."""

    agent: str
    scopes: frozenset[str]

    def may(self, agent: str, scope: KeyScope) -> bool:
        return agent == self.agent and bool({scope, KeyScope.ADMIN} & self.scopes)


def looks_like_key(token: str) -> bool:
    return _KEY.fullmatch(token) is not None


def holder_of(ledger: Ledger, token: str) -> KeyHolder | None:
    """Whose key a token is; none, if it is none that is in force."""
    read = _KEY.fullmatch(token)
    if read is None:
        return None
    with ledger.read() as tx:
        known = rows.find_key(tx, int(read[1]))
    # As long for a number that no key has.
    fits = hmac.compare_digest(_hash(read[2]), _NOBODYS if known is None else known.hash)
    return KeyHolder(known.agent, frozenset(known.scopes)) if known is not None and fits else None


class KeyKeeper:
    """Who may call an agent at its address: for feedback, and from other machines for anything, a token is needed."""

    def __init__(self, ledger: Ledger, home_token: str | None) -> None:
        self._ledger = ledger
        self._home_token = (home_token or "").encode()

    async def check(self, route: AgentRoute, authorization: bytes | None, *, guarded: bool) -> None:
        """Raises `KeyNeeded` or `KeyTooNarrow`."""
        scope = KeyScope.FEEDBACK if route.role is Role.TUNER else KeyScope.CALL
        if scope is KeyScope.CALL and not guarded:
            return
        scheme, _, token = (authorization or b"").partition(b" ")
        token = token.strip() if scheme.lower() == b"bearer" else b""
        if self._home_token and hmac.compare_digest(token, self._home_token):
            return
        text = token.decode("latin-1")
        holder = await asyncio.to_thread(holder_of, self._ledger, text) if looks_like_key(text) else None
        if holder is None or holder.agent != route.agent:
            raise KeyNeeded(
                f"the {route.role} of agent {route.agent} wants a key, which is missing or wrong",
                hint=f"`ratchet agent key add {route.agent} NAME --scopes {scope}` makes one; send it as"
                " `Authorization: Bearer KEY`",
            )
        if not holder.may(route.agent, scope):
            raise KeyTooNarrow(
                f"this key of agent {route.agent} does not open its {route.role}",
                hint=f"make one with `ratchet agent key add {route.agent} NAME --scopes {scope}`",
            )


def _hash(secret: str) -> str:
    """Enough for what is random and as long as this: there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def allowed_by(ledger: Ledger, agent: str) -> Collection[str]:
    """What the servers of an agent may connect to now."""

    def look() -> Collection[str]:
        with ledger.read() as tx:
            return rows.egress_of(tx, agent)

    return await asyncio.to_thread(look)


_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
# What the sandbox, Python and the kit are told by.
_RESERVED = re.compile(r"(RATCHET|PYTHON|LD)_.*|PATH|HOME|LANG|(HTTPS?|NO|ALL)_PROXY", re.IGNORECASE)
_LONGEST_SECRET, _SHORTEST_SECRET, _MOST_SECRETS, _MOST_TARGETS = 16_384, 6, 100, 200


def secrets_of(runtime: Runtime, agent: str) -> Mapping[str, str]:
    """The secrets of an agent in the clear, for its servers' environment. Raises `SecretsUnreadable`."""
    from ratchet.projects.address import SecretsUnreadable

    with runtime.ledger.read() as tx:
        row = get_agent(tx, agent)
        sealed = rows.sealed_secrets(tx, row.id)
    if not sealed:
        return {}
    # Slow to import, and most agents have none.
    from cryptography.fernet import InvalidToken

    from ratchet.projects.secrets import find_key

    key, found = find_key(runtime), {}
    for each in sealed:
        try:
            opened = json.loads(key.decrypt(each.value.encode()))
        except InvalidToken as error:
            raise SecretsUnreadable(
                f"the secret {each.name} of agent {agent} was kept with another key",
                hint="give every machine the same projects.secret_key, or set the secret again",
            ) from error
        if (opened["agent"], opened["name"]) != (row.id, each.name):
            raise SecretsUnreadable(
                f"what is kept as the secret {each.name} of agent {agent} belongs to another one",
                hint="set the secret again, and see who writes to the database",
            )
        remember_secret(opened["value"])
        found[each.name] = opened["value"]
    return found


def _seal(runtime: Runtime, agent: AgentRow, name: str, value: str) -> str:
    from ratchet.projects.secrets import find_key

    sealed = json.dumps({"agent": agent.id, "name": name, "value": value})
    return find_key(runtime).encrypt(sealed.encode()).decode()


def _check_secret(name: str, value: str) -> None:
    if not _SECRET_NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise Misuse(
            f"{name[:80]!r} cannot be the name of a secret",
            hint="it becomes a variable of the environment, such as WEATHER_TOKEN",
        )
    if not _SHORTEST_SECRET <= len(value) <= _LONGEST_SECRET or "\0" in value:
        raise Misuse(
            f"the secret {name} must have from {_SHORTEST_SECRET} to {_LONGEST_SECRET} characters",
            hint="what is shorter could not be kept out of logs and answers",
        )


def typed_scopes(_call: Call, text: str) -> list[str]:
    """Words with commas between them, or a list of JSON."""
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, list):
            return [str(each) for each in found]
    return [word.strip() for word in text.split(",") if word.strip()]


def typed_secret(_call: Call, text: str) -> str:
    """The value itself, or with `-` what is typed or comes by the standard input."""
    if text != "-":
        return text
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("value: ")
    return sys.stdin.read(_LONGEST_SECRET + 2).removesuffix("\n")


KeyName = Annotated[str, line_of("The name of a key.", "KEY", argument=True)]
Target = Annotated[
    str, line_of("A host: example.com, example.com:8443 or *.example.com.", "HOST", argument=True)
]
SecretName = Annotated[str, line_of("The variable of the environment.", "SECRET", argument=True)]


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """A key of an agent, without the key itself."""

    name: str
    scopes: list[str]
    created_by: str
    created_at: int


@dataclass(frozen=True, slots=True)
class NewKeyAnswer:
    """A key that was made; `key` is shown this once."""

    name: str
    scopes: list[str]
    key: str = field(metadata=described("what callers send as `Authorization: Bearer`; it is kept nowhere"))


@dataclass(frozen=True, slots=True)
class EgressAnswer:
    """What the servers of an agent may connect to."""

    host: str


@dataclass(frozen=True, slots=True)
class SecretAnswer:
    """A secret of an agent, without its value."""

    name: str
    updated_at: int


@operation(
    "agent key add",
    "POST /agents/{name}/keys",
    examples=[
        "ratchet agent key add greeter website",
        "ratchet agent key add greeter desk --scopes call,feedback",
    ],
    see=["agent key list", "agent key revoke"],
    columns={"key": "key", "name": "name", "scopes": "scopes"},
    status=201,
)
def add_key(
    call: Call,
    name: AgentName,
    key: KeyName,
    scopes: Annotated[
        list[str] | None,
        Param(
            "What it opens: call, feedback, admin; call if not given.",
            metavar="SCOPES",
            read="ratchet.agents.access:typed_scopes",
        ),
    ] = None,
) -> NewKeyAnswer:
    """Make a key for callers of an agent. It is shown this once; only a hash of it is kept.

    It opens this agent alone: call its tools, feedback its Tuner and its feedback, admin everything.
    """
    wanted = list(dict.fromkeys(scopes or [KeyScope.CALL]))
    unknown = [each for each in wanted if each not in set(KeyScope)]
    if unknown:
        raise Misuse(f"there is no scope {unknown[0][:80]!r}", hint=f"there are: {', '.join(KeyScope)}")
    secret = secrets.token_urlsafe(32)
    with call.write() as tx:
        made = rows.add_key(tx, get_agent(tx, name), key, scopes=wanted, hash=_hash(secret), by=call.person)
    return NewKeyAnswer(made.name, wanted, f"rk_{made.id}_{secret}")


@operation(
    "agent key list",
    "GET /agents/{name}/keys",
    examples=["ratchet agent key list greeter"],
    see=["agent key add", "agent key revoke"],
    columns={"key": "name", "scopes": "scopes", "by": "created_by", "made": "created_at"},
    empty="It has no keys. `ratchet agent key add` makes one.",
)
def list_keys(call: Call, name: AgentName) -> Listing[KeyAnswer]:
    """List the keys of an agent by name, with what they open."""
    with call.read() as tx:
        found = rows.list_keys(tx, get_agent(tx, name).id)
    return Listing([_shown(each) for each in found])


@operation(
    "agent key revoke",
    "DELETE /agents/{name}/keys/{key}",
    examples=["ratchet agent key revoke greeter website"],
    see=["agent key list"],
    done="The key {it.name} opens nothing any more",
    status=204,
)
def revoke_key(call: Call, name: AgentName, key: KeyName) -> KeyAnswer:
    """Revoke a key of an agent: the next request with it is refused."""
    with call.write() as tx:
        return _shown(rows.remove_key(tx, get_agent(tx, name), key))


def _shown(key: rows.AgentKey) -> KeyAnswer:
    return KeyAnswer(key.name, list(key.scopes), key.created_by, key.created_at)


@operation(
    "agent egress add",
    "POST /agents/{name}/egress",
    examples=[
        "ratchet agent egress add greeter api.example.com",
        "ratchet agent egress add greeter 10.0.0.5:5432",
    ],
    see=["agent egress list", "agent egress remove"],
    columns={"host": "host"},
    empty="Its servers may connect to nothing.",
    status=201,
)
def add_egress(call: Call, name: AgentName, host: Target) -> Listing[EgressAnswer]:
    """Allow the servers of an agent to connect to a host; it holds at once.

    Without a port that is 80 and 443. A name never leads to an address that is not public; name such an address itself.
    """
    from ratchet.agents.servers.egress import read_target

    wanted = str(read_target(host))
    return _changed_egress(call, name, lambda known: [*known, wanted] if wanted not in known else known)


@operation(
    "agent egress list",
    "GET /agents/{name}/egress",
    examples=["ratchet agent egress list greeter"],
    see=["agent egress add", "agent egress remove"],
    columns={"host": "host"},
    empty="Its servers may connect to nothing.",
)
def list_egress(call: Call, name: AgentName) -> Listing[EgressAnswer]:
    """List what the servers of an agent may connect to."""
    with call.read() as tx:
        return _targets(get_agent(tx, name).egress)


@operation(
    "agent egress remove",
    "DELETE /agents/{name}/egress/{host}",
    examples=["ratchet agent egress remove greeter api.example.com"],
    see=["agent egress list"],
    done="Its servers cannot connect there any more",
    status=204,
)
def remove_egress(call: Call, name: AgentName, host: Target) -> Listing[EgressAnswer]:
    """No longer allow the servers of an agent to connect to a host; open connections stay."""
    from ratchet.agents.servers.egress import read_target

    gone = str(read_target(host))

    def without(known: list[str]) -> list[str]:
        if gone not in known:
            raise Misuse(
                f"{name} may not connect to {gone}", hint=f"it may to: {', '.join(known) or 'nothing'}"
            )
        return [each for each in known if each != gone]

    return _changed_egress(call, name, without)


def _changed_egress(call: Call, name: str, change: Any) -> Listing[EgressAnswer]:
    with call.write() as tx:
        agent = get_agent(tx, name)
        known = list(agent.egress or ())
        wanted = change(known)
        if len(wanted) > _MOST_TARGETS:
            raise Misuse(f"an agent may connect to at most {_MOST_TARGETS} hosts", hint="name *.example.com")
        if wanted != known:
            rows.set_egress(tx, agent, wanted)
    return _targets(wanted)


def _targets(known: Any) -> Listing[EgressAnswer]:
    return Listing([EgressAnswer(each) for each in known or ()])


@operation(
    "agent secret set",
    "POST /agents/{name}/secrets",
    examples=['printf %s "$TOKEN" | ratchet agent secret set greeter WEATHER_TOKEN'],
    see=["agent secret list", "agent secret remove"],
    done="{it.name} is set; servers that start from now on have it",
)
def set_secret(
    call: Call,
    name: AgentName,
    secret: SecretName,
    value: Annotated[
        str,
        Param(
            "The value; - is typed when asked, or comes by the standard input.",
            metavar="VALUE",
            usual="-",
            read="ratchet.agents.access:typed_secret",
            longest=_LONGEST_SECRET,
        ),
    ],
) -> SecretAnswer:
    """Give the servers of an agent a secret, as a variable of their environment.

    It is kept encrypted, never shown again, and kept out of logs, recorded calls and answers.
    """
    _check_secret(secret, value)
    remember_secret(value)
    with call.write() as tx:
        agent = get_agent(tx, name)
        known = {each.name for each in rows.sealed_secrets(tx, agent.id)}
        if len(known | {secret}) > _MOST_SECRETS:
            raise Misuse(f"an agent has at most {_MOST_SECRETS} secrets", hint="remove one that is not used")
        rows.put_sealed(tx, agent, secret, _seal(call.runtime, agent, secret, value))
        return _one_secret(tx, agent, secret)


@operation(
    "agent secret list",
    "GET /agents/{name}/secrets",
    examples=["ratchet agent secret list greeter"],
    see=["agent secret set", "agent secret remove"],
    columns={"secret": "name", "set": "updated_at"},
    empty="It has no secrets. `ratchet agent secret set` gives it one.",
)
def list_secrets(call: Call, name: AgentName) -> Listing[SecretAnswer]:
    """List the names of the secrets of an agent."""
    with call.read() as tx:
        found = rows.sealed_secrets(tx, get_agent(tx, name).id)
    return Listing([SecretAnswer(each.name, each.updated_at) for each in found])


@operation(
    "agent secret remove",
    "DELETE /agents/{name}/secrets/{secret}",
    examples=["ratchet agent secret remove greeter WEATHER_TOKEN"],
    see=["agent secret list"],
    done="{it.name} is removed; servers that start from now on do not have it",
    status=204,
)
def remove_secret(call: Call, name: AgentName, secret: SecretName) -> SecretAnswer:
    """Remove a secret of an agent."""
    with call.write() as tx:
        agent = get_agent(tx, name)
        removed = [each for each in rows.sealed_secrets(tx, agent.id) if each.name == secret]
        rows.remove_sealed(tx, agent, secret)
    return SecretAnswer(secret, removed[0].updated_at)


def _one_secret(tx: Transaction, agent: AgentRow, name: str) -> SecretAnswer:
    [found] = [each for each in rows.sealed_secrets(tx, agent.id) if each.name == name]
    return SecretAnswer(found.name, found.updated_at)


OPERATIONS = (
    add_key,
    list_keys,
    revoke_key,
    add_egress,
    list_egress,
    remove_egress,
    set_secret,
    list_secrets,
    remove_secret,
)
