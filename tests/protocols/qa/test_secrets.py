"""The gate that keeps credentials out of the history. What looks like one here is put together when it is needed."""

from __future__ import annotations

import json
import random
import string

import pytest

from ratchet.judges import Judged
from ratchet.kernel import Outcome
from ratchet.protocols.qa.gates import ALLOWED, RULES, SecretsGate, rules_broken
from tests.protocols.qa.ground import Ground

_letters = random.Random(7)


def made_up(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Random letters with a digit among them, and without a word in them that stands in for a secret."""
    return "".join(_letters.choices(alphabet, k=length - 3)) + "q7Z"


def capitals(length: int) -> str:
    return "".join(_letters.choices(string.ascii_uppercase + "234567", k=length))


SECRETS = {
    "private-key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "aws-access-key": "key: AKIA" + capitals(16),
    "github-token": "curl -H 'Authorization: ghp_" + made_up(36) + "'",
    "gitlab-token": "glpat-" + made_up(20),
    "slack-token": "xoxb-" + made_up(24),
    "slack-webhook": "https://hooks.slack.com/services/T"
    + made_up(10)
    + "/B"
    + made_up(10)
    + "/"
    + made_up(24),
    "anthropic-key": "sk-ant-api03-" + made_up(40),
    "openai-key": "sk-proj-" + made_up(48),
    "stripe-key": "sk_live_" + made_up(24),
    "google-key": "AIza" + made_up(35),
    "npm-token": "//registry.example.org/:_auth=npm_" + made_up(36),
    "pypi-token": "pypi-AgEI" + made_up(60),
    "sendgrid-key": "SG." + made_up(22) + "." + made_up(43),
    "huggingface-token": "hf_" + made_up(34),
    "web-token": "eyJ" + made_up(20) + ".eyJ" + made_up(40) + "." + made_up(43),
    "password-in-address": "postgresql://ada:" + made_up(16) + "@db.internal/main",
    "assignment": 'api_key = "' + made_up(24) + '"',
    "variable": "DB_PASSWORD=" + made_up(20),
}
HARMLESS = [
    'password = "correct-horse-battery"',
    'api_key = os.environ["API_KEY"]',
    'token = "${GITHUB_TOKEN}"',
    'token: "{{ secrets.token }}"',
    'secret = "<your secret here>"',
    'API_KEY = "replace-me-0123456789"',
    'password: str = Field("changeme1234")',
    'token_hash = "' + made_up(40, "0123456789abcdef") + '"',
    'secret_name = "projects/demo/x7Yq2Lm9Pz41"',
    'tokenizer = "gpt2-medium-345m"',
    'private_key_path = "/etc/keys/server1.pem"',
    "TOKEN=$(cat /run/token)",
    "PASSWORD=",
    "max_tokens = 4096",
    "postgresql://user:password@localhost/db",
    "https://example.org:8443/a@b",
    "-----BEGIN PUBLIC KEY-----",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "commit " + made_up(40, "0123456789abcdef"),
    '"integrity": "sha512-' + made_up(86) + '=="',
    "a sentence about tokens: they are short-lived",
    "sk-and-then-a-long-name-without-any-figures-in-it-at-all",
    "token = get_token(settings.secret_name)",
]


def judged(ground: Ground, commit: str) -> Judged:
    return ground.ask(SecretsGate(repository=ground.repository, base=ground.base), commit)


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_each_form_of_credential_is_found(rule: str) -> None:
    assert rule in list(rules_broken(SECRETS[rule]))


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_speaks_of_credentials_is_none(line: str) -> None:
    assert list(rules_broken(line)) == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_credential_fails_and_is_told_by_its_place_alone(ground: Ground, encoding: str) -> None:
    secret = SECRETS["assignment"]
    found = judged(ground, ground.change({"a.py": f"import os\n{secret}\n".encode(encoding)}))
    assert (found.verdict.outcome, found.verdict.measurements["secrets"]) == (Outcome.FAILED, 1.0)
    [finding] = json.loads(found.reports[0].content)["findings"]
    assert (finding["file"], finding["line"], finding["rule"]) == ("a.py", 2, "assignment")
    value = secret.split('"')[1]
    assert value not in found.verdict.reason
    assert all(value.encode() not in report.content for report in found.reports)


def test_a_line_can_be_marked_as_allowed_and_the_reviewer_is_told(ground: Ground) -> None:
    line = f"{SECRETS['github-token']}  # {ALLOWED}\n"
    found = judged(ground, ground.change({"a.py": line})).verdict
    assert (found.outcome, found.measurements["secrets"]) == (Outcome.PASSED, 0.0)
    assert "a.py:1" in found.reason
    assert "marked as allowed" in found.reason


def test_lines_that_were_there_before_are_not_new(ground: Ground) -> None:
    ground.settle({"a.py": f"x = 1\n{SECRETS['assignment']}\n"})
    assert judged(ground, ground.change({"a.py": f"x = 2\n{SECRETS['assignment']}\n"})).verdict.passed
    assert judged(ground, ground.change({"a.py": None, "b.py": SECRETS["assignment"] + "\n"})).verdict.passed
    twice = ground.change({"a.py": f"x = 1\n{SECRETS['assignment']}\n{SECRETS['assignment']}\n"})
    assert judged(ground, twice).verdict.outcome is Outcome.FAILED


def test_a_credential_that_a_later_commit_takes_out_is_still_in_the_history(ground: Ground) -> None:
    leaked = ground.change({"a.py": SECRETS["assignment"] + "\n"})
    fixed = ground.change({"a.py": "x = 1\n"}, parent=leaked)
    found = judged(ground, fixed).verdict
    assert (found.outcome, found.measurements["secrets"]) == (Outcome.FAILED, 1.0)
    assert leaked[:12] in found.reason


def test_a_commit_that_does_not_follow_from_the_base_cannot_be_judged(ground: Ground) -> None:
    found = judged(ground, ground.change({"a.py": "x = 1\n"}, parent=None)).verdict
    assert found.outcome is Outcome.ERROR
    assert "does not follow" in found.reason


def test_a_credential_in_the_middle_of_a_very_long_line_is_found(ground: Ground) -> None:
    line = "x " * 9_990 + SECRETS["github-token"] + " y" * 30_000
    assert judged(ground, ground.change({"a.js": line})).verdict.outcome is Outcome.FAILED


def test_a_file_that_keys_are_kept_in_fails(ground: Ground) -> None:
    found = judged(ground, ground.change({"deploy/id_ed25519": b"\x01\x02"})).verdict
    assert (found.outcome, found.measurements["secrets"]) == (Outcome.FAILED, 1.0)
