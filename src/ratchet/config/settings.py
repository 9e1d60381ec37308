"""The settings in force.

A table that nobody set cannot be wrong, and to build all of them takes longer than most commands: it is made when it is
first asked for. What somebody set is checked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from ratchet.config.redaction import DatabaseUrl

if TYPE_CHECKING:
    from ratchet.config.keys import Keys
else:
    Keys = object


class Settings(Keys):
    """One consistent set of settings, with the tables of `Keys`. Made by `load_settings`, never changed afterwards.

    Raises pydantic's `ValidationError` for the first table of `tables` that is wrong.
    """

    _set: frozenset[str]

    def __init__(self, database_url: DatabaseUrl | str, tables: Mapping[str, Any] | None = None) -> None:
        if isinstance(database_url, str):
            database_url = DatabaseUrl.parse(database_url)
        self.__dict__ = {
            "database_url": database_url,
            "_set": frozenset(tables or ()),
            **{name: _made(name, values) for name, values in (tables or {}).items()},
        }

    def sets(self, table: str) -> bool:
        """Whether anything in `table` was set. To ask before its values spares loading all that checks settings."""
        return table in self._set

    def replace(self, **tables: Any) -> Settings:
        """The same settings with other tables, made already, in the place of their own."""
        changed = Settings(self.database_url)
        changed.__dict__ |= self.__dict__ | tables | {"_set": self._set | tables.keys()}
        return changed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Settings):
            return NotImplemented
        made = (self.__dict__.keys() | other.__dict__.keys()) - {"_set"}
        return all(getattr(self, name) == getattr(other, name) for name in made)

    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return self.__dict__.setdefault(name, _made(name, {}))

        def __setattr__(self, name: str, value: Any) -> None:
            if name != "__dict__":
                raise AttributeError(f"settings are not changed: {name}")
            super().__setattr__(name, value)

        def __repr__(self) -> str:
            return f"Settings({self.database_url!r})"


def _made(name: str, values: Any) -> Any:
    """The table called `name`, with `values` in the place of its defaults."""
    from pydantic import TypeAdapter

    from ratchet.config.keys import Keys

    field = Keys.model_fields.get(name)
    if field is None:
        raise AttributeError(f"there are no settings called {name!r}")
    # `Annotated` wants something after the type; pydantic leaves a name alone.
    table: Any = Annotated[field.annotation, *field.metadata, name]
    return TypeAdapter(table).validate_python(values)
