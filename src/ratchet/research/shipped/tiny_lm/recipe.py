"""Learns a byte-level language model from a text and writes it as `model.tlm`: `recipe.py INPUTS OUT`.

The model is a set of hashed tables with the counts of what follows a context, one for each length of context. The
evaluator does all inference by itself; knowledge/format.md says how it reads the file. Everything here may be changed.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

BYTES = 9000  # search: 4000..18000
ORDER_0 = 0.1  # search: 0.02..1.0 log
ORDER_1 = 1.0  # search: 0.05..8.0 log
ORDER_2 = 1.0  # search: 0.05..8.0 log
ORDER_3 = 1.0  # search: 0.05..8.0 log
ORDER_4 = 1.0  # search: 0.05..8.0 log
ORDER_5 = 1.0  # search: 0.05..8.0 log
ORDER_6 = 1.0  # search: 0.05..8.0 log
CHECK_BITS = 10  # search: 2..14
COUNT_BITS = 4  # search: 1..6
GROWTH = 2.0  # search: 1.2..4.0 log
WAYS = 1  # search: 1 | 2 | 3 | 4
LEAST = 2  # search: 1..8
FIRST = "count"  # search: "count" | "gain"
ALPHA_SHORT = 2.0  # search: 0.01..20.0 log
ALPHA_LONG = 2.0  # search: 0.01..20.0 log
DISCOUNT = 0.5  # search: 0.0..2.0

SHARES = (ORDER_0, ORDER_1, ORDER_2, ORDER_3, ORDER_4, ORDER_5, ORDER_6)
PRIME = np.uint64(0x100000001B3)
START = np.uint64(0xCBF29CE484222325)
MIX = np.uint64(0xFF51AFD7ED558CCD)


def main(inputs: Path, out: Path) -> None:
    text = np.frombuffer((inputs / "train.txt").read_bytes(), np.uint8)
    levels = np.concatenate([[0.0], GROWTH ** np.arange(2**COUNT_BITS - 1)])
    tables, payload = [], b""
    hashes = np.full(len(text), START)
    shorter = np.full(len(text), 1 / 256)
    for order, share in enumerate(SHARES):
        if order:
            before = np.concatenate([np.zeros(order, np.uint8), text[:-order]])
            hashes = (hashes ^ before.astype(np.uint64)) * PRIME
        keys, counts, gains, shorter = counted(hashes, text, shorter)
        slots = max(1, int(share / sum(SHARES) * BYTES * 8 / (CHECK_BITS + COUNT_BITS)))
        payload += table(keys, counts, gains, slots, levels)
        slope = order / (len(SHARES) - 1)
        tables.append(
            {
                "order": order,
                "slots": slots,
                "ways": WAYS,
                "check_bits": CHECK_BITS,
                "alpha": round(ALPHA_SHORT ** (1 - slope) * ALPHA_LONG**slope, 4),
                "discount": round(DISCOUNT, 4),
            }
        )
    header = {
        "alphabet": np.unique(text).tolist(),
        "count_bits": COUNT_BITS,
        "levels": [min(float(f"{level:.4g}"), 1e6) for level in levels],
        "tables": tables,
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    (out / "model.tlm").write_bytes(b"TLM1" + struct.pack("<I", len(head)) + head + payload)


def counted(
    hashes: np.ndarray, text: np.ndarray, shorter: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Each pair of context and byte once: its key, how often it occurs, the bits it saves over a shorter context.

    And for each byte of the text how likely it was.
    """
    _, inverse, contexts = np.unique(hashes, return_inverse=True, return_counts=True)
    keys, first, which, counts = np.unique(
        (hashes ^ text.astype(np.uint64)) * PRIME, return_index=True, return_inverse=True, return_counts=True
    )
    likely = counts / contexts[inverse[first]]
    return keys, counts, counts * np.log2(likely / shorter[first]), likely[which]


def table(keys: np.ndarray, counts: np.ndarray, gains: np.ndarray, slots: int, levels: np.ndarray) -> bytes:
    """The packed slots. What matters most is placed first; what finds all its places taken is left out."""
    worth = counts if FIRST == "count" else gains
    order = np.argsort(-worth, kind="stable")
    order = (
        order[(counts[order] >= LEAST) & (gains[order] > 0)]
        if FIRST == "gain"
        else order[counts[order] >= LEAST]
    )
    keys, counts = mix(keys[order]), counts[order]
    check = (keys >> np.uint64(32)) & np.uint64((1 << CHECK_BITS) - 1)
    low, step = keys & np.uint64(0xFFFFFFFF), (keys >> np.uint64(48)) | np.uint64(1)
    level = np.clip(np.rint(np.log(counts) / np.log(GROWTH)).astype(np.int64) + 1, 1, len(levels) - 1)
    packed = (check << np.uint64(COUNT_BITS)) | level.astype(np.uint64)
    values = np.zeros(slots, np.uint64)
    waiting = np.arange(len(keys))
    for way in range(WAYS):
        place = ((low[waiting] + np.uint64(way) * step[waiting]) % np.uint64(slots)).astype(np.int64)
        free = values[place] == 0
        taken, first = np.unique(place[free], return_index=True)
        placed = waiting[free][first]
        values[taken] = packed[placed]
        waiting = np.setdiff1d(waiting, placed)
    width = CHECK_BITS + COUNT_BITS
    shifts = np.arange(width - 1, -1, -1, dtype=np.uint64)
    return np.packbits(((values[:, None] >> shifts) & np.uint64(1)).astype(np.uint8).ravel()).tobytes()


def mix(keys: np.ndarray) -> np.ndarray:
    keys = (keys ^ (keys >> np.uint64(32))) * MIX
    return keys ^ (keys >> np.uint64(29))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
