"""What was used, whether more is allowed, and budget held for attempts that run; sessions, and what stages they ended.

Usage is real and therefore always recorded, even when it breaks a budget; the budget then refuses what comes next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import sqlalchemy as sa

from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits, NotFound, Usage
from ratchet.ledger.tables import attempts, budgets, holds, sessions, stages, usage, usage_days, usage_totals
from ratchet.ledger.transaction import Transaction, upsert

Scope = Literal["attempt", "run", "project", "version"]
"""What has a total of its own. A `version` is one of an agent, for what it uses while it serves."""
SCOPES: tuple[Scope, ...] = ("attempt", "run", "project")
"""Those that a `Spender` belongs to: each of their totals is a sum of rows."""

_LIMITS = tuple(budgets.c[each.name] for each in fields(Limits))
_USED = tuple(usage_totals.c[each.name] for each in fields(Usage))


def _looked_up(count: int) -> sa.Select[Any]:
    """One row for each of `count` scopes, with what there is about it."""
    wanted = sa.union_all(
        *(
            sa.select(
                sa.bindparam(f"scope_{at}", type_=budgets.c.scope.type).label("scope"),
                sa.bindparam(f"number_{at}", type_=budgets.c.scope_id.type).label("number"),
            )
            for at in range(count)
        )
    ).subquery("wanted")
    found: sa.FromClause = wanted
    for table in (budgets, usage_totals):
        found = found.outerjoin(
            table, (table.c.scope == wanted.c.scope) & (table.c.scope_id == wanted.c.number)
        )
    columns = (wanted.c.scope, budgets.c.scope.is_not(None), budgets.c.policy, *_LIMITS, *_USED)
    return sa.select(*columns).select_from(found)


_LOOK_UP = {count: _looked_up(count) for count in range(1, len(SCOPES) + 1)}


@dataclass(frozen=True, slots=True)
class Budgets:
    """The limits in force where no budget of its own is set."""

    policy: BudgetPolicy = BudgetPolicy.STRICT
    limits: Mapping[Scope, Limits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spender:
    """Who uses: any of an attempt, its run and its project."""

    attempt_id: int | None = None
    run_id: int | None = None
    project_id: int | None = None

    def ids(self) -> dict[str, int | None]:
        """Each by the name of its column."""
        return {"attempt_id": self.attempt_id, "run_id": self.run_id, "project_id": self.project_id}

    def scopes(self) -> list[tuple[Scope, int]]:
        ids = zip(SCOPES, (self.attempt_id, self.run_id, self.project_id), strict=True)
        return [(scope, number) for scope, number in ids if number is not None]


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """How one of them stands. Its limits are its own, or else the configured ones."""

    scope: Scope
    scope_id: int
    limits: Limits
    policy: BudgetPolicy
    _used: Sequence[Any]

    @property
    def bounded(self) -> bool:
        """Whether there is a limit that means something."""
        return self.policy is not BudgetPolicy.OFF and self.limits != Limits()

    @property
    def spent(self) -> Usage:
        """Everything used so far."""
        return Usage() if self._used[0] is None else Usage(*self._used)


def accounts(tx: Transaction, scopes: Sequence[tuple[Scope, int]], defaults: Budgets) -> list[BudgetAccount]:
    """How each of these stands, in their order; `defaults` are in force where no budget of its own is set."""
    if not scopes:
        return []
    wanted: dict[str, Any] = {}
    for at, (scope, number) in enumerate(scopes):
        wanted[f"scope_{at}"], wanted[f"number_{at}"] = scope, number
    rows = {row[0]: row[1:] for row in tx.connection.execute(_LOOK_UP[len(scopes)], wanted).all()}
    return [_account(scope, number, rows[scope], defaults) for scope, number in scopes]


def account(tx: Transaction, scope: Scope, scope_id: int, defaults: Budgets) -> BudgetAccount:
    """How one attempt, run, project or version stands."""
    [found] = accounts(tx, [(scope, scope_id)], defaults)
    return found


def _account(scope: Scope, number: int, row: Sequence[Any], defaults: Budgets) -> BudgetAccount:
    own, policy, limits, used = row[0], row[1], row[2 : 2 + len(_LIMITS)], row[2 + len(_LIMITS) :]
    if not own:
        return BudgetAccount(scope, number, defaults.limits.get(scope, Limits()), defaults.policy, used)
    return BudgetAccount(
        scope, number, Limits(*limits), BudgetPolicy(policy) if policy else defaults.policy, used
    )


_log = logging.getLogger(__name__)
DAY_MS = 86_400_000

# Built once: they run for every attempt, and building a statement takes longer than running it.
_TOTAL = sa.select(*(usage_totals.c[f.name] for f in fields(Usage))).where(
    usage_totals.c.scope == sa.bindparam("of"), usage_totals.c.scope_id == sa.bindparam("number")
)
_CHARGE = sa.insert(usage)
_ADD = upsert(
    usage_totals,
    ("scope", "scope_id"),
    lambda new: {f.name: usage_totals.c[f.name] + new[f.name] for f in fields(Usage)},
)
_ADD_TO_DAY = upsert(
    usage_days,
    ("day", "run_id", "engine", "model"),
    lambda new: {f.name: usage_days.c[f.name] + new[f.name] for f in fields(Usage)},
)


def set_budget(
    tx: Transaction, scope: Scope, scope_id: int, limits: Limits, policy: BudgetPolicy | None = None
) -> None:
    """Give one attempt, run or project limits of its own, in place of the configured ones."""
    values = {**asdict(limits), "policy": policy and str(policy)}
    tx.connection.execute(
        tx.insert(budgets)
        .values(scope=scope, scope_id=scope_id, **values)
        .on_conflict_do_update(index_elements=["scope", "scope_id"], set_=values)
    )
    tx.event(
        "budget.set",
        message=f"{scope} {scope_id}",
        data={"scope": scope, "scope_id": scope_id, **values},
        run_id=scope_id if scope == "run" else None,
        project_id=scope_id if scope == "project" else None,
    )


def charge(
    tx: Transaction,
    spender: Spender,
    used: Usage,
    defaults: Budgets,
    *,
    engine: str,
    model: str | None = None,
) -> None:
    """Record `used` and add it to every total. Does not raise: call `check` before spending more.

    The first time a total passes its limit an event says so.
    """
    tx.connection.execute(
        _CHARGE, {"at": tx.now, "engine": engine, "model": model, **spender.ids(), **used.measures()}
    )
    scopes = spender.scopes()
    _add(tx, scopes, used)
    # After the total of the run, which is held from then on: nobody else writes to its days meanwhile.
    of_day = {
        "day": tx.now // DAY_MS,
        "run_id": spender.run_id or 0,
        "engine": engine,
        "model": model or "",
        "project_id": spender.project_id,
    }
    tx.connection.execute(_ADD_TO_DAY(tx.dialect), {**of_day, **used.measures()})
    _say_exceeded(tx, accounts(tx, scopes, defaults), used, spender)


def was_charged(tx: Transaction, spender: Spender, used: Usage, *, at: int) -> bool:
    """Whether exactly this was charged at that time: for a caller whose transaction was not confirmed."""
    wanted = {"at": at, **spender.ids(), **used.measures()}
    query = sa.select(usage.c.at).where(*(usage.c[name] == value for name, value in wanted.items()))
    return tx.connection.execute(query.limit(1)).first() is not None


def add_total(
    tx: Transaction, scope: Scope, scope_id: int, used: Usage, defaults: Budgets, spender: Spender
) -> None:
    """Add to one total what `spender` used. The first time it passes its limit an event says so."""
    _add(tx, [(scope, scope_id)], used)
    _say_exceeded(tx, [account(tx, scope, scope_id, defaults)], used, spender)


def check(tx: Transaction, spender: Spender, defaults: Budgets) -> Limits:
    """What may still be used. Raises `BudgetExceeded` when a strict budget has nothing left; others bound nothing."""
    left = Limits()
    for each in accounts(tx, spender.scopes(), defaults):
        left = left.tightest(_left(each))
    return left


def check_total(tx: Transaction, scope: Scope, scope_id: int, defaults: Budgets) -> Limits:
    """What one total still allows. Raises `BudgetExceeded` as `check` does."""
    return _left(account(tx, scope, scope_id, defaults))


def total(tx: Transaction, scope: Scope, scope_id: int) -> Usage:
    """Everything used so far by one attempt, run, project or version."""
    row = tx.connection.execute(_TOTAL, {"of": scope, "number": scope_id}).first()
    return Usage(*row) if row else Usage()


def totals(tx: Transaction, scope: Scope, scope_ids: Sequence[int]) -> dict[int, Usage]:
    """The totals of several attempts, runs, projects or versions at once."""
    found = {number: Usage() for number in scope_ids}
    wanted = sa.select(usage_totals).where(usage_totals.c.scope == scope, usage_totals.c.scope_id.in_(found))
    for row in tx.connection.execute(wanted).mappings() if found else ():
        found[row["scope_id"]] = Usage(**{f.name: row[f.name] for f in fields(Usage)})
    return found


def _add(tx: Transaction, scopes: Sequence[tuple[Scope, int]], used: Usage) -> None:
    """Add to totals. Their rows stay locked, so the next writer starts from there."""
    if not scopes:
        return
    measures = used.measures()
    tx.connection.execute(
        _ADD(tx.dialect), [{"scope": scope, "scope_id": number, **measures} for scope, number in scopes]
    )


def _say_exceeded(tx: Transaction, after: Sequence[BudgetAccount], used: Usage, spender: Spender) -> None:
    for each in after:
        if not each.bounded:
            continue
        spent = each.spent
        over = each.limits.exceeded_by(spent)
        if over is None or each.limits.exceeded_by(spent.less(used)):
            continue
        measure, amount, limit = over
        tx.event(
            "budget.exceeded",
            message=f"{measure} of {each.scope} {each.scope_id}: {amount:g} of {limit:g}",
            data={
                "scope": each.scope,
                "scope_id": each.scope_id,
                "measure": measure,
                "used": amount,
                "limit": limit,
                "policy": each.policy,
            },
            **spender.ids(),
        )


def _left(of: BudgetAccount) -> Limits:
    if not of.bounded:
        return Limits()
    spent = of.spent
    out = of.limits.reached_by(spent)
    if out and of.policy is BudgetPolicy.STRICT:
        raise BudgetExceeded(of.scope, of.scope_id, *out)
    if out:
        _log.warning(
            "the %s budget of %s %s is used up: %g of %g", out[0], of.scope, of.scope_id, out[1], out[2]
        )
    return of.limits.less(spent) if of.policy is BudgetPolicy.STRICT else Limits()


def hold(tx: Transaction, spender: Spender, defaults: Budgets, *, side_by_side: int | None = None) -> Limits:
    """What the attempt may use, set aside until it ends. Raises `BudgetExceeded` when nothing is left for it.

    One of up to `side_by_side` attempts of its run is promised its share of what is left. Where that number is not
    given, only an attempt with a limit of its own can be promised something; one without shares what is left.
    """
    # An attempt that begins has used nothing and has no budget but the configured one.
    strict = defaults.policy is BudgetPolicy.STRICT
    own = defaults.limits.get("attempt", Limits()) if strict else Limits()
    sharing = Spender(None, spender.run_id, spender.project_id)
    allowed = check(tx, sharing, defaults)
    if _unbounded(own) and (side_by_side is None or _unbounded(allowed)):
        return own.tightest(allowed)
    shared = sharing.scopes()
    # Two attempts that begin at once must see each other's holds.
    tx.lock_keys(*(f"budget {scope} {number}" for scope, number in shared))
    left = own.tightest(check(tx, sharing, defaults))
    shares = 1 if side_by_side is None else max(1, side_by_side - _running(tx, spender))
    for each in accounts(tx, shared, defaults):
        left = left.tightest(_share(_unheld(tx, each), own, shares))
    values = {"tokens": left.tokens or 0, "cost_microusd": round((left.cost_usd or 0) * 1_000_000)}
    tx.connection.execute(sa.insert(holds).values(**spender.ids(), **values))
    return left


def _unbounded(limits: Limits) -> bool:
    return limits.tokens is None and limits.cost_usd is None


def _share(free: Limits, own: Limits, shares: int) -> Limits:
    """A part of what is free, of that which the attempt has no limit of its own for."""
    tokens, cost = free.tokens, free.cost_usd
    if tokens is not None and own.tokens is None:
        tokens = -(-tokens // shares)
    if cost is not None and own.cost_usd is None:
        cost /= shares
    return replace(free, tokens=tokens, cost_usd=cost)


def _running(tx: Transaction, spender: Spender) -> int:
    query = sa.select(sa.func.count()).select_from(holds).where(holds.c.run_id == spender.run_id)
    return tx.connection.execute(query).scalar_one()


def _unheld(tx: Transaction, of: BudgetAccount) -> Limits:
    if of.policy is not BudgetPolicy.STRICT or not of.bounded:
        return Limits()
    taken = of.spent + _held(tx, of.scope, of.scope_id)
    out = Limits(of.limits.tokens, of.limits.cost_usd).reached_by(taken)
    if out is not None:
        raise BudgetExceeded(of.scope, of.scope_id, *out, held=True)
    return of.limits.less(taken)


def _held(tx: Transaction, scope: Scope, number: int) -> Usage:
    """What running attempts may still use. There are only as many rows as attempts that run now."""
    query = (
        sa.select(
            holds.c.tokens,
            holds.c.cost_microusd,
            (usage_totals.c.input_tokens + usage_totals.c.output_tokens).label("used_tokens"),
            usage_totals.c.cost_microusd.label("used_cost"),
        )
        .select_from(
            holds.outerjoin(
                usage_totals,
                (usage_totals.c.scope == "attempt") & (usage_totals.c.scope_id == holds.c.attempt_id),
            )
        )
        .where(holds.c[f"{scope}_id"] == number)
    )
    rows = tx.connection.execute(query).all()
    return Usage(
        input_tokens=_rest((row.tokens, row.used_tokens) for row in rows),
        cost_microusd=_rest((row.cost_microusd, row.used_cost) for row in rows),
    )


def _rest(pairs: Iterable[tuple[int, int | None]]) -> int:
    return sum(max(0, promised - (used or 0)) for promised, used in pairs)


_INSERT = sa.insert(sessions).returning(sessions.c.id)
_USAGE = tuple(each.name for each in fields(Usage))


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: int
    run_id: int | None
    attempt_id: int | None
    role: str
    engine: str
    model: str | None
    failure: str | None
    reason: str | None
    resume: str | None
    transcript: str | None
    simulated: bool
    usage: Usage
    at: int


def add_session(
    tx: Transaction,
    *,
    role: str,
    engine: str,
    usage: Usage,
    run_id: int | None = None,
    attempt_id: int | None = None,
    model: str | None = None,
    failure: str | None = None,
    reason: str | None = None,
    resume: str | None = None,
    transcript: str | None = None,
    simulated: bool = False,
) -> int:
    """Record a session that has ended, well or not. `transcript` is the hash of its artifact."""
    row: dict[str, Any] = {
        "run_id": run_id,
        "attempt_id": attempt_id,
        "role": role,
        "engine": engine,
        "model": model,
        "failure": failure,
        "reason": reason,
        "resume": resume,
        "transcript": transcript,
        "simulated": simulated,
        "at": tx.now,
        **usage.measures(),
    }
    number: int = tx.connection.execute(_INSERT, row).scalar_one()
    tx.event(
        "session.failed" if failure else "session.ended",
        run_id=run_id,
        attempt_id=attempt_id,
        message=reason,
        data={"session": number, "role": role, "engine": engine, "failure": failure, "simulated": simulated},
    )
    return number


def get_session(tx: Transaction, session_id: int) -> SessionRow:
    row = tx.connection.execute(sa.select(sessions).where(sessions.c.id == session_id)).mappings().first()
    if row is None:
        raise NotFound("session", session_id)
    return _session(row)


def list_sessions(
    tx: Transaction,
    *,
    run_id: int | None = None,
    attempt_id: int | None = None,
    engine: str | None = None,
    failed: bool = False,
    before: int | None = None,
    limit: int = 50,
) -> list[SessionRow]:
    """Sessions, newest first, a page at a time; with `failed` only those that failed."""
    query = sa.select(sessions).order_by(sessions.c.id.desc()).limit(limit)
    wanted = {"run_id": run_id, "attempt_id": attempt_id, "engine": engine}
    query = query.where(*(sessions.c[name] == value for name, value in wanted.items() if value is not None))
    if failed:
        query = query.where(sessions.c.failure.is_not(None))
    if before is not None:
        query = query.where(sessions.c.id < before)
    return [_session(row) for row in tx.connection.execute(query).mappings()]


def of_attempts(tx: Transaction, attempt_ids: Sequence[int]) -> list[SessionRow]:
    """Those of several attempts, oldest first."""
    if not attempt_ids:
        return []
    query = sa.select(sessions).where(sessions.c.attempt_id.in_(attempt_ids)).order_by(sessions.c.id)
    return [_session(row) for row in tx.connection.execute(query).mappings()]


def _session(row: sa.RowMapping) -> SessionRow:
    plain = {name: value for name, value in row.items() if name not in _USAGE}
    return SessionRow(**plain, usage=Usage(**{name: row[name] for name in _USAGE}))


_INSERT_STAGE = sa.insert(stages)
_OF_STEP = (
    sa.select(stages.c.data)
    .join(attempts, attempts.c.id == stages.c.attempt_id)
    .where(attempts.c.step_id == sa.bindparam("step"), stages.c.name == sa.bindparam("wanted"))
    .order_by(attempts.c.number)
)
_OF_ATTEMPT = sa.select(stages.c.name, stages.c.data).where(stages.c.attempt_id == sa.bindparam("attempt"))


def finish_stage(tx: Transaction, attempt_id: int, name: str, data: Any) -> None:
    """Record that the attempt has finished the stage `name`, with what the next ones need of it."""
    tx.connection.execute(_INSERT_STAGE, {"attempt_id": attempt_id, "name": name, "at": tx.now, "data": data})


def finished_stages(tx: Transaction, attempt_id: int) -> dict[str, Any]:
    """What each finished stage left."""
    return {row.name: row.data for row in tx.connection.execute(_OF_ATTEMPT, {"attempt": attempt_id})}


def stages_of_step(tx: Transaction, step_id: int, name: str) -> list[Any]:
    """What the stage `name` left in each attempt at a step that has finished it, in order."""
    return list(tx.connection.execute(_OF_STEP, {"step": step_id, "wanted": name}).scalars())
