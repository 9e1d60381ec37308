"""The tasks that come with Ratchet. Each function is an entry point of the group `ratchet.tasks`."""

from pathlib import Path

_HERE = Path(__file__).parent


def shipped_directory() -> Path:
    """Where they all lie."""
    return _HERE


def circle_packing() -> Path:
    return _HERE / "circle_packing"


def bin_packing() -> Path:
    return _HERE / "bin_packing"


def tiny_lm() -> Path:
    return _HERE / "tiny_lm"


def digits96() -> Path:
    return _HERE / "digits96"


def nanotree() -> Path:
    return _HERE / "nanotree"


def parameter_golf() -> Path:
    return _HERE / "parameter_golf"


def cifar_airbench96() -> Path:
    return _HERE / "cifar_airbench96"


def nanochat_d12() -> Path:
    return _HERE / "nanochat_d12"
