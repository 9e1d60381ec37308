"""What the demo shows, one act after the other: each does real work, tells of it, and returns what there is to see."""
