"""What the processes say about themselves: `logs`, `metrics` and `tracing`.

Nothing is imported here, so that a command pays only for the one it uses.
"""
