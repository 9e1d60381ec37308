"""The same DAG for every peer: layers of steps that return what they are given, each script in its own environment.

A step takes the value of the step above it and waits for that one's neighbour as well.
"""
