"""Datasets whose rows lie on nodes: the coordinator has the nodes pack them, one step after another."""
