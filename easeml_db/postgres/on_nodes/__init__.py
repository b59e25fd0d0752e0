"""Requests about rows on nodes: the coordinator lets the nodes do them, step by step."""
