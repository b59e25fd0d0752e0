"""Everything that is decided, as pure functions of values: no clock, no global randomness, no file, no socket."""
