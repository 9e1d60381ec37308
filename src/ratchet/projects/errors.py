"""What can go wrong between a project, its clone and its remote."""

from __future__ import annotations

from ratchet.kernel import ConfigError, Conflict, Misuse, RatchetError


class CloneMissing(Conflict):
    """The repository of a project is not on this machine, and may not or cannot be brought here."""


class RemoteFailed(RatchetError):
    """A remote did not answer, or answered that it will not."""

    http_status = 502


class PushRefused(Conflict):
    """A remote did not take a branch."""


class Unconfirmed(Misuse):
    """Something that cannot be undone was asked for without saying that it is meant."""

    http_status = 400


class SecretsUnreadable(ConfigError):
    """The secrets of projects cannot be read or kept with the key that this process has."""

    http_status = 503
