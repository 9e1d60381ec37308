"""The HTTP face: the API (`app`), and `serving`, which runs it beside a worker in one process."""
