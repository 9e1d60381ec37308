"""Settings that are added to a file that a person wrote."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from ratchet.config.file import add_settings
from ratchet.config.sources import flatten
from ratchet.kernel import ConfigError

WANTED = {
    ("engines", "default"): "codex",
    ("engines", "codex", "model"): "gpt-5.5",
    ("llm", "prices", "gpt-5.5", "input"): 1.25,
}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "# only a remark",
        "[llm]\ntries = 2\n",
        "[llm]\ntries = 2\n[llm.prices.other]\ninput = 1\noutput = 1\n",
        '[llm.prices."gpt-5.5"]\noutput = 1\n',
        "[engines.codex]\neffort = 'low' # mine\n\n[engines]\ntries = 1\n",
        "engines.tries = 1\n[server]\nport = 1\n",
    ],
)
def test_what_is_missing_is_added_and_every_line_stays(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "ratchet.toml"
    if text is not None:
        file.write_text(text)
    before = dict(flatten(tomllib.loads(text or "")))
    assert add_settings(tmp_path, WANTED) == file
    assert dict(flatten(tomllib.loads(file.read_text()))) == {**before, **WANTED}
    assert set((text or "").splitlines()) <= set(file.read_text().splitlines())
    again = file.read_text()
    add_settings(tmp_path, WANTED)
    assert file.read_text() == again


def test_a_value_that_is_there_is_kept_and_so_are_the_rights(tmp_path: Path) -> None:
    file = tmp_path / "ratchet.toml"
    file.write_text('engines.default = "aider"\n')
    file.chmod(0o600)
    add_settings(tmp_path, WANTED)
    assert tomllib.loads(file.read_text())["engines"]["default"] == "aider"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_form_that_takes_no_additions_is_left_alone_and_the_lines_are_told(tmp_path: Path) -> None:
    file = tmp_path / "ratchet.toml"
    file.write_text("engines = {tries = 1}\n")
    with pytest.raises(ConfigError, match="nothing can be added") as caught:
        add_settings(tmp_path, WANTED)
    assert 'engines.codex.model = "gpt-5.5"' in str(caught.value.hint)
    assert file.read_text() == "engines = {tries = 1}\n"
