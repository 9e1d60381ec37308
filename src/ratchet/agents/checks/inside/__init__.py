"""Programs that are run in the sandbox, beside what they look at. They import nothing of Ratchet's but the kit."""
