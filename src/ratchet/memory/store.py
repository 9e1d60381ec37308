"""Opening the memory that the settings name."""

from __future__ import annotations

from pathlib import Path

from ratchet.config.workflow_settings import MemorySettings as Settings
from ratchet.memory.embedders import SharedWords, WordLlama
from ratchet.memory.memory import Embedder, Memory

FILE_NAME = "memory.db"


def open_memory(settings: Settings, home: Path, embedder: Embedder | None = None) -> Memory:
    """The memory of this home, or of the server that the settings name; made when it is not there yet.

    A file keeps the embedder that it was made with until `reembed`. Raises `WrongEmbedder` when its vectors were made
    by another embedder than the given one, and `Missing` without the extra it needs.
    """
    if settings.store == "qdrant":
        from ratchet.memory.qdrant import open_server

        return open_server(settings.qdrant, embedder or best_embedder())
    from ratchet.memory.sqlite import SqliteMemory

    return SqliteMemory(home / FILE_NAME, embedder or _embedder_of(home / FILE_NAME))


def reembed(settings: Settings, home: Path, embedder: Embedder | None = None) -> int:
    """Re-embed every entry with this embedder, and say how many. Cut short, it can be started again."""
    embedder = embedder or best_embedder()
    if settings.store == "qdrant":
        from ratchet.memory.qdrant import reembed_server

        return reembed_server(settings.qdrant, embedder)
    from ratchet.memory.sqlite import reembed_file

    return reembed_file(home / FILE_NAME, embedder)


def best_embedder() -> Embedder:
    """By meaning if word vectors are installed, else by shared words."""
    return WordLlama() if WordLlama.is_installed() else SharedWords()


def search_advice() -> str | None:
    """What a person should know who searches by shared words alone; nothing where meaning is known."""
    if WordLlama.is_installed():
        return None
    # Only now: it reads what the installation says of itself.
    from ratchet.extras import install_line

    return (
        f"Found by shared words. To find by meaning, {install_line('memory')}, then `ratchet memory reembed`."
    )


def _embedder_of(path: Path) -> Embedder:
    from ratchet.memory.sqlite_file import made_with

    name = made_with(path)
    if name is None:
        return best_embedder()
    return SharedWords() if name == SharedWords.name else WordLlama()
