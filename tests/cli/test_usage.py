from __future__ import annotations

from ratchet.kernel import Usage
from ratchet.ledger import Budgets, Ledger, Spender
from ratchet.ledger.runs import create_run
from ratchet.ledger.usage import charge
from tests.cli.conftest import Ratchet


def spend(ledger: Ledger, name: str, used: Usage, engine: str, model: str | None) -> None:
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, "research", name)
        charge(tx, Spender(run_id=run_id), used, Budgets(), engine=engine, model=model)


def test_what_was_used_is_shown_by_engine_and_model_and_by_run(ratchet: Ratchet, ledger: Ledger) -> None:
    assert "Nothing was used" in ratchet("usage").err
    spend(ledger, "dear", Usage(input_tokens=1200, output_tokens=30, cost_microusd=8_100), "codex", "gpt-5.5")
    spend(ledger, "free", Usage(trials=7, wall_ms=1500), "search", None)
    first, _, head, codex, search, _, runs, *rows = ratchet("usage").out.splitlines()
    assert first == "In the last 30 days: $0.0081"
    assert head.replace("tokens ", "").split() == [
        "engine",
        "model",
        "in",
        "cached",
        "out",
        "cost",
        "time",
        "trials",
    ]
    assert codex.split() == ["codex", "gpt-5.5", "1200", "0", "30", "$0.0081", "0.0s", "0"]
    assert search.split() == ["search", "-", "0", "0", "0", "$0.00", "1.5s", "7"]
    assert runs.startswith("run  kind      name")
    assert [row.split()[:3] for row in rows] == [["1", "research", "dear"], ["2", "research", "free"]]


def test_a_program_gets_the_figures_of_the_console(ratchet: Ratchet, ledger: Ledger) -> None:
    spend(ledger, "unpriced", Usage(input_tokens=5, unpriced_tokens=5), "llm", "local/x")
    found = ratchet("usage", "--days", "7", "--json").json
    assert (len(found["period"]), found["total"]["tokens"], found["total"]["cost_usd"]) == (7, 5, None)
    assert [(each["engine"], each["model"], each["priced"]) for each in found["by_engine"]] == [
        ("llm", "local/x", False)
    ]
    assert "unknown" in ratchet("usage").out
