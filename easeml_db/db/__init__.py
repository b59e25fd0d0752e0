"""PostgreSQL as the coordinator's store."""
