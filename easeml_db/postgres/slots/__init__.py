"""Slots in service: the executor over their sessions, and the programs that start and stop instances."""
