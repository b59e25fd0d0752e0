"""The default procedure: a race of architectures against the clock."""
