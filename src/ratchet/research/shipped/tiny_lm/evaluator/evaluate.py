"""Says how many bits per byte a model that was left as `model.tlm` needs for a text it has not seen.

The file is data, never code: `knowledge/format.md` describes it. All inference happens here, and it gives every byte
some probability and all bytes together one, whatever the file says.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
SIZE_CAP = 16_384
# What is larger is not even read. Up to here a score is told, though it does not count.
LARGEST = 4 * SIZE_CAP
MAGIC = b"TLM1"
MOST_HEADER = 4096
MOST_ORDER = 8
MOST_SLOTS = 1 << 20
PRIME = np.uint64(0x100000001B3)
START = np.uint64(0xCBF29CE484222325)
MIX = np.uint64(0xFF51AFD7ED558CCD)


class Invalid(Exception):
    """The file is not a model."""


@dataclass(frozen=True)
class Table:
    """Counts of what follows contexts of `order` bytes, found by hash."""

    order: int
    ways: int
    check: int
    alpha: float
    discount: float
    checks: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Model:
    alphabet: np.ndarray
    tables: dict[int, Table]


def score(asked: dict[str, Any]) -> dict[str, Any]:
    text = (FOLDER / ("held_out.txt" if asked["held_out"] else "valid.txt")).read_bytes()
    try:
        content = read_plain(Path(asked["trial"]["out"]) / "model.tlm")
        bits = bits_per_byte(parse(content), np.frombuffer(text, np.uint8))
    except Invalid as invalid:
        return {"invalid": str(invalid), "status": "disqualified"}
    answer: dict[str, Any] = {"bits_per_byte": bits, "measurements": {"artifact_bytes": len(content)}}
    if len(content) > SIZE_CAP:
        answer["invalid"] = f"model.tlm has {len(content)} bytes; at most {SIZE_CAP} are allowed"
        answer["status"] = "size_blocked"
    return answer


def read_plain(path: Path) -> bytes:
    """The content of a plain file that is not far too large. A link, a pipe or a directory is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid(f"{path.name} cannot be read: {error.strerror}") from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Invalid(f"{path.name} is not a plain file")
        if about.st_size > LARGEST:
            raise Invalid(f"{path.name} has {about.st_size} bytes, far more than the {SIZE_CAP} allowed")
        return os.read(descriptor, LARGEST)
    finally:
        os.close(descriptor)


def parse(content: bytes) -> Model:
    """The model that these bytes describe. Raises `Invalid`; nothing larger than a few megabytes is ever made."""
    if content[:4] != MAGIC or len(content) < 8:
        raise Invalid("model.tlm does not begin with TLM1 and the length of its header")
    (length,) = struct.unpack("<I", content[4:8])
    if length > min(MOST_HEADER, len(content) - 8):
        raise Invalid(
            f"the header is said to have {length} bytes; it has at most {MOST_HEADER} and must be there"
        )
    header = read_header(content[8 : 8 + length])
    whole(header["count_bits"], "count_bits", 1, 8)
    levels = np.array(numbers(header["levels"], "levels", 0.0, 1e6), np.float64)
    if len(levels) != 2 ** header["count_bits"] or levels[0] != 0:
        raise Invalid("levels has 2 ** count_bits numbers, and the first is 0, for an empty slot")
    alphabet = header["alphabet"]
    if not isinstance(alphabet, list) or not 1 <= len(alphabet) <= 128:
        raise Invalid("the alphabet is a list of 1 to 128 bytes")
    wanted = [whole(each, "a byte of the alphabet", 0, 255) for each in alphabet]
    if len(set(wanted)) < len(wanted):
        raise Invalid("the alphabet has a byte twice")
    tables = read_tables(header, levels, content[8 + length :])
    return Model(np.array(wanted, np.uint8), tables)


def read_header(content: bytes) -> dict[str, Any]:
    try:
        header = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Invalid("the header is not JSON") from None
    known = {"alphabet", "count_bits", "levels", "tables"}
    if not isinstance(header, dict) or set(header) != known:
        raise Invalid(f"the header is an object with exactly {', '.join(sorted(known))}")
    return header


def read_tables(header: dict[str, Any], levels: np.ndarray, payload: bytes) -> dict[int, Table]:
    listed = header["tables"]
    if not isinstance(listed, list) or len(listed) > MOST_ORDER + 1:
        raise Invalid(f"tables is a list of at most {MOST_ORDER + 1}")
    known = {"order", "slots", "ways", "check_bits", "alpha", "discount"}
    tables: dict[int, Table] = {}
    at = 0
    for each in listed:
        if not isinstance(each, dict) or set(each) != known:
            raise Invalid(f"a table is an object with exactly {', '.join(sorted(known))}")
        order = whole(each["order"], "order", 0, MOST_ORDER)
        slots = whole(each["slots"], "slots", 1, MOST_SLOTS)
        ways = whole(each["ways"], "ways", 1, 4)
        check = whole(each["check_bits"], "check_bits", 0, 16)
        if order in tables:
            raise Invalid(f"there are two tables of order {order}")
        size = (slots * (check + header["count_bits"]) + 7) // 8
        if at + size > len(payload):
            raise Invalid(f"the table of order {order} needs {size} bytes; {len(payload) - at} are left")
        checks, counts = unpack(payload[at : at + size], slots, check, header["count_bits"])
        at += size
        alpha, discount = numbers([each["alpha"], each["discount"]], "alpha and discount", 0.0, 1e6)
        if alpha < 1e-3:
            raise Invalid(
                f"alpha is at least 0.001, or some byte could have no probability; this one is {alpha:g}"
            )
        tables[order] = Table(order, ways, check, alpha, discount, checks, levels[counts])
    if at != len(payload):
        raise Invalid(f"{len(payload) - at} bytes are left behind the last table")
    return tables


def unpack(content: bytes, slots: int, check: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The check and the count of each slot; the bits of a slot follow each other, the highest first."""
    bits = np.unpackbits(np.frombuffer(content, np.uint8))[: slots * (check + count)]
    rows = bits.reshape(slots, check + count).astype(np.uint32)
    weights = 1 << np.arange(check + count - 1, -1, -1, dtype=np.uint32)
    values = rows @ weights
    return values >> count, values & ((1 << count) - 1)


def whole(value: object, name: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Invalid(f"{name} is a whole number from {low} to {high}, not {value!r:.40}")
    return value


def numbers(values: object, name: str, low: float, high: float) -> list[float]:
    if not isinstance(values, list) or len(values) > 256:
        raise Invalid(f"{name} is a list of at most 256 numbers")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise Invalid(f"{name} are numbers from {low:g} to {high:g}, not {value!r:.40}")
    return [float(value) for value in values]


def bits_per_byte(model: Model, text: np.ndarray) -> float:
    """The mean cost of a byte. Each order mixes its counts with what the next shorter context says.

    Contexts that occur more than once in the text are worked out once. Before the text there are bytes of zero.
    """
    symbols = np.full(256, len(model.alphabet))
    symbols[model.alphabet] = np.arange(len(model.alphabet))
    longest = max(model.tables, default=0)
    context = np.zeros(len(text), np.int64)
    hashes = np.array([START])
    # One row per context: a probability for each byte of the alphabet, and the one that every other byte has.
    likely = np.full((1, len(model.alphabet) + 1), 1 / 256)
    for order in range(longest + 1):
        if order:
            before = np.concatenate([np.zeros(order, np.uint8), text[:-order]])
            longer, context = np.unique(context * 256 + before, return_inverse=True)
            parent = longer // 256
            hashes = (hashes[parent] ^ (longer % 256).astype(np.uint64)) * PRIME
            likely = likely[parent]
        if order in model.tables:
            likely = mixed(model.tables[order], hashes, model.alphabet, likely)
    chosen = likely[context, symbols[text]]
    bits = float(-np.log2(chosen).mean())
    if not math.isfinite(bits):
        raise Invalid("the model gives a byte no probability")
    return bits


def mixed(table: Table, hashes: np.ndarray, alphabet: np.ndarray, likely: np.ndarray) -> np.ndarray:
    counts = np.zeros_like(likely)
    counts[:, :-1] = found(table, hashes, alphabet)
    taken = np.minimum(counts, table.discount)
    shared = table.alpha + taken.sum(axis=1, keepdims=True)
    return (counts - taken + shared * likely) / (counts.sum(axis=1, keepdims=True) + table.alpha)


def found(table: Table, hashes: np.ndarray, alphabet: np.ndarray) -> np.ndarray:
    """The counts of every byte of the alphabet behind every context: of the first slot whose check agrees."""
    key = (hashes[:, None] ^ alphabet.astype(np.uint64)[None, :]) * PRIME
    key ^= key >> np.uint64(32)
    key *= MIX
    key ^= key >> np.uint64(29)
    check = (key >> np.uint64(32)) & np.uint64((1 << table.check) - 1)
    low, step = key & np.uint64(0xFFFFFFFF), (key >> np.uint64(48)) | np.uint64(1)
    counts = np.zeros(key.shape)
    for way in reversed(range(table.ways)):
        slot = (low + np.uint64(way) * step) % np.uint64(len(table.counts))
        here = np.where(table.checks[slot] == check, table.counts[slot], 0.0)
        counts = np.where(here > 0, here, counts)
    return counts


if __name__ == "__main__":
    json.dump(score(json.load(sys.stdin)), sys.stdout)
