"""What the coordinator repeats beside its loop: vacuum, forecasts, refreshes."""
