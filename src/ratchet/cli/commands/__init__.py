"""The commands, one module for each noun. `ratchet.cli.catalogue` says which is where."""
