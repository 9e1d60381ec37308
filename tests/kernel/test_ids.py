import pytest

from ratchet.kernel import Outcome, Verdict, is_name, new_id


@pytest.mark.parametrize("name", ["a", "7", "night-run", "a.b_c-d", "x" * 64])
def test_a_name_is_safe_as_a_path_a_branch_and_a_part_of_a_url(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a..b", "-a", "a-", "A", "a/b", "a b", "ä", "a\n", "a\x00", "x" * 65]
)
def test_anything_else_is_not_a_name(name: str) -> None:
    assert not is_name(name)


def test_new_ids_differ_and_begin_with_their_kind() -> None:
    ids = {new_id("worker") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(each.startswith("worker-") for each in ids)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_a_pass_is_passed(outcome: Outcome) -> None:
    verdict = Verdict(outcome, "because", "tests", "0" * 64)
    assert verdict.passed is (outcome is Outcome.PASSED)
