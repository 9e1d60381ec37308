"""Reading `RATCHET_*` variables with pydantic-settings.

Imported only when such a variable is set, since pydantic-settings is slow to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from ratchet.config.settings import Settings


class _Shape(Settings, BaseSettings):
    # Every value is plain text: JSON for whole tables would be a second way to say the same.
    model_config = SettingsConfigDict(env_prefix="RATCHET_", env_nested_delimiter="__", enable_decoding=False)


def read_variables(variables: Mapping[str, str]) -> dict[str, Any]:
    """The nested tables that `variables` describe; those whose first word is unknown are left out."""
    source = EnvSettingsSource(_Shape)
    source.env_vars = {name.lower(): text for name, text in variables.items()}
    return source()
