"""The HTTP face: the API (`app`), the process that answers (`serving`), and what keeps it running (`supervisor`)."""
