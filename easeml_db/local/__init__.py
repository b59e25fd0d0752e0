"""Processes on this machine: the private PostgreSQL server, and the coordinator as a process."""
