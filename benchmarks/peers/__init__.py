"""Other harnesses and engines, each in an environment of its own."""
