"""What is remembered of rows that do not change any more."""

from __future__ import annotations

from ratchet.ledger.remembered import Remembered


def test_the_oldest_are_forgotten_so_that_it_never_grows_for_ever() -> None:
    remembered = Remembered()
    for number in range(20_000):
        remembered.add({number: f"value {number}"})
    assert remembered.get(19_999) == "value 19999"
    assert remembered.get(17_000) == "value 17000"
    assert remembered.get(0) is None
    kept = [number for number in range(20_000) if remembered.get(number) is not None]
    assert len(kept) <= 4096
    assert kept == list(range(kept[0], 20_000))


def test_many_at_once_do_not_exceed_it_either() -> None:
    remembered = Remembered()
    remembered.add({number: number for number in range(50_000)})
    assert sum(remembered.get(number) is not None for number in range(50_000)) <= 4096
