from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from ratchet.memory import WordLlama

TEXTS = ["read a CSV file", "Übung 🧗 macht den Meister", "x = foo(bar)[0]\n" * 200, "a"]


def test_vectors_are_of_length_one_and_equal_texts_have_equal_ones(embedder: WordLlama) -> None:
    vectors = embedder.embed([*TEXTS, *TEXTS])
    assert vectors.shape == (8, embedder.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert (vectors[:4] == vectors[4:]).all()
    assert (vectors[:1] == embedder.embed(TEXTS[:1])).all()


def test_an_empty_text_is_all_zeros(embedder: WordLlama) -> None:
    assert not embedder.embed([""]).any()
    assert embedder.embed([]).shape == (0, 256)


@pytest.mark.soak
def test_the_vectors_are_those_of_the_package_itself(embedder: WordLlama) -> None:
    # In a process of its own: the package sets up logging when it is imported.
    script = """
import json, pathlib, sys, wordllama
directory = pathlib.Path(wordllama.__file__).parent
model = wordllama.WordLlama.load(cache_dir=directory, disable_download=True)
print(json.dumps(model.embed(json.loads(sys.argv[1]), norm=True).tolist()))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = np.array(json.loads(done.stdout))
    assert np.abs(theirs - embedder.embed(TEXTS)).max() < 1e-6


WITHOUT_NETWORK = """
import sys

def refuse(event, arguments):
    if event.startswith("socket.") or event == "urllib.Request":
        raise SystemExit(f"{event} {arguments}")

sys.addaudithook(refuse)
from ratchet.memory import WordLlama
assert WordLlama().embed(["offline"]).any()
assert "wordllama" not in sys.modules
print("embedded")
"""


@pytest.mark.soak
def test_nothing_is_downloaded(tmp_path: object) -> None:
    command = [sys.executable, "-c", WITHOUT_NETWORK]
    unshare = shutil.which("unshare")
    for alone in ([unshare, "-n"], [unshare, "-rn"]):
        # Without any network at all where the kernel allows it, and with sockets refused everywhere.
        if unshare and subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0:
            command = [*alone, *command]
            break
    environment = {"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "embedded\n"), done.stderr


def test_importing_the_memory_loads_nothing_heavy() -> None:
    heavy = ("numpy", "tokenizers", "safetensors", "qdrant_client", "sqlalchemy", "wordllama")
    script = f"import sys, ratchet.memory; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("characters", [100_000, 1_000_000])
def test_a_long_text_is_read_in_part(embedder: WordLlama, characters: int) -> None:
    text = ("word " * characters)[:characters]
    assert (embedder.embed([text]) == embedder.embed([text[:16_000]])).all()
