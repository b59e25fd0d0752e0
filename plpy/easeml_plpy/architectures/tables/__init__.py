"""Architectures for tables: linear models, networks, forests and boosted trees."""
