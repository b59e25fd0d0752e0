"""Commands for searches: start, watch, report, replay."""
