"""Population based training."""
