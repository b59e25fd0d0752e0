"""The demo: one run, several tenants, or a cluster."""
