"""Workers of Citus clusters of which only the coordinator can be reached."""
