"""Tools: what a step of a workflow may call, with schemas, versions, pins and a record of how each one fares."""
