"""A small network: the embeddings of a window side by side, one hidden layer, a guess at the next token."""

from __future__ import annotations

import numpy as np

WIDTH = 8  # search: 4..48 log
HIDDEN = 24  # search: 8..192 log
SPREAD = 0.5  # search: 0.1..3.0 log
ACTIVATION = "tanh"  # search: "tanh" | "relu"
SMOOTHING = 0.1  # search: 0.0..0.3


class Model:
    def __init__(self, vocabulary: int, window: int, chance: np.random.Generator) -> None:
        def drawn(rows: int, columns: int, size: float) -> np.ndarray:
            return chance.standard_normal((rows, columns), dtype=np.float32) * np.float32(size)

        self.weights = {
            "embedding": drawn(vocabulary, WIDTH, SPREAD),
            "inward": drawn(window * WIDTH, HIDDEN, (window * WIDTH) ** -0.5),
            "inward_bias": np.zeros(HIDDEN, np.float32),
            "outward": drawn(HIDDEN, vocabulary, HIDDEN**-0.5),
            "outward_bias": np.zeros(vocabulary, np.float32),
        }

    def log_likely(self, contexts: np.ndarray) -> np.ndarray:
        """For each context the logarithm of how likely each token is to follow."""
        _, _, logits = self._forward(contexts)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def slopes(self, contexts: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        flat, hidden, logits = self._forward(contexts)
        likely = np.exp(logits - logits.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        error = likely - np.float32(SMOOTHING / likely.shape[1])
        error[np.arange(len(targets)), targets] -= np.float32(1 - SMOOTHING)
        error /= len(targets)
        back = error @ self.weights["outward"].T
        back *= 1 - hidden**2 if ACTIVATION == "tanh" else hidden > 0
        embedding = np.zeros_like(self.weights["embedding"])
        np.add.at(embedding, contexts, (back @ self.weights["inward"].T).reshape(*contexts.shape, WIDTH))
        return {
            "embedding": embedding,
            "inward": flat.T @ back,
            "inward_bias": back.sum(axis=0),
            "outward": hidden.T @ error,
            "outward_bias": error.sum(axis=0),
        }

    def _forward(self, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        flat = self.weights["embedding"][contexts].reshape(len(contexts), -1)
        inward = flat @ self.weights["inward"] + self.weights["inward_bias"]
        hidden = np.tanh(inward) if ACTIVATION == "tanh" else np.maximum(inward, 0)
        return flat, hidden, hidden @ self.weights["outward"] + self.weights["outward_bias"]
