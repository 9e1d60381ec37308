"""The side of the sandbox that runs in other processes.

Its modules are started by path, without site-packages and without the rest of Ratchet, so they import only each other
(relatively) and the standard library. What they import decides how long a run takes to begin.
"""
