"""Workflows as data, and the one executor. Plain Python: an export carries this package and needs nothing else."""
