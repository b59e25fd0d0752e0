"""All decisions, as pure functions of values: no clock, no global randomness, no file, no socket."""
