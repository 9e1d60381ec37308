"""Projects: git repositories that Ratchet works on, from registering one to knowing how to check a change of it."""
