"""The options that every command takes, before or after its name."""

from __future__ import annotations

import click

from ratchet.cli.session import Session

# Option name to the setting it stands for.
_SETTINGS = {
    "home": "home",
    "database_url": "database_url",
    "log_level": "log.level",
    "log_format": "log.format",
}


def shared_options() -> list[click.Parameter]:
    """Fresh options that write what they are given into the session."""
    return [
        _text(
            "--home",
            "DIRECTORY",
            "Where settings, ledger and artifacts are; $RATCHET_HOME, else the nearest .ratchet, if not given.",
        ),
        _text(
            "--database-url",
            "URL",
            "The ledger, sqlite:///FILE or postgresql://…; ledger.db in the home if not given.",
        ),
        _text("--log-level", "LEVEL", "debug, info, warning or error; info if not given."),
        _text("--log-format", "FORMAT", "How lines of the log look: text or json; text if not given."),
        _switch("--json", "Print JSON, also for errors."),
        _switch("--verbose", "Log everything, and show where an error came from.", "-v"),
    ]


def _text(name: str, metavar: str, help: str) -> click.Option:
    return click.Option([name], metavar=metavar, help=help, expose_value=False, callback=_keep_setting)


def _switch(name: str, help: str, *more: str) -> click.Option:
    return click.Option(
        [*more, name], is_flag=True, help=help, expose_value=False, is_eager=True, callback=_keep_switch
    )


def _keep_setting(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).flags[_SETTINGS[option.name or ""]] = value


def _keep_switch(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        setattr(context.ensure_object(Session), option.name or "", True)
