"""Workers of Citus clusters as nodes, and distributed tables as the shards that they are."""
