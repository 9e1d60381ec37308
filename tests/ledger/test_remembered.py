"""What is remembered of rows that do not change any more."""

from __future__ import annotations

from ratchet.ledger.transaction import Remembered


def test_the_oldest_are_forgotten_so_that_it_never_grows_for_ever() -> None:
    remembered = Remembered()
    for number in range(20_000):
        remembered.add({number: f"value {number}"})
    assert remembered.several([19_999, 0, 17_000]) == ["value 19999", None, "value 17000"]
    found = remembered.several(range(20_000))
    kept = [number for number, value in enumerate(found) if value is not None]
    assert len(kept) <= 4096
    assert kept == list(range(kept[0], 20_000))


def test_many_at_once_do_not_exceed_it_either() -> None:
    remembered = Remembered()
    remembered.add({number: number for number in range(50_000)})
    assert sum(value is not None for value in remembered.several(range(50_000))) <= 4096
