"""Metrics: additive statistics of answers, and the values that they come to."""
