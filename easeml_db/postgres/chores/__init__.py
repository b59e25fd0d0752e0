"""Chores that the coordinator repeats beside its loop: vacuum, forecasts, refreshes."""
