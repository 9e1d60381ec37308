"""What runs inside the sandbox with the code of a tool. It is read as text and imports only the standard library."""
