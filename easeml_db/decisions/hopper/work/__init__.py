"""The work of one run: trials, gangs, batches, pilots, and the slots that each may use."""
