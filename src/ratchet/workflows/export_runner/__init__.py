"""What runs an exported workflow: the standard library and `flowkit`, nothing else. An export carries this package."""
