"""How fast Ratchet is, next to its peers and to the bare disk, in one run: `python -m benchmarks`."""
