"""Segments of a Greenplum cluster as nodes: reached through its coordinator, by queries that one of them does."""
