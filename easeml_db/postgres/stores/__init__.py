"""The stores: what the loop reads and records, in named queries."""
