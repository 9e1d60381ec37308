"""How a server without a network is reached, and reaches Ratchet: over two sockets in a directory.

Half of it runs in the sandbox, by a bare Python, so nothing here imports anything but the standard library.
"""
