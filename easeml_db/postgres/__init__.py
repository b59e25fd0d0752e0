"""The ports on PostgreSQL: the store, sessions that run units on slots, and the extension's files."""
