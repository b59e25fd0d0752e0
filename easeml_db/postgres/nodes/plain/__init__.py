"""PostgreSQL servers as nodes: the default, and what other engines differ from."""
