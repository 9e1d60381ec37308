"""The reference of commands, API and settings, and manual pages, made of the code itself."""
