"""Answers of the trial that serves: one row, many rows, whole tables."""
