"""Each module measures one thing and returns a `Result`."""
