"""Procedures that draw configs and train each to the end."""
