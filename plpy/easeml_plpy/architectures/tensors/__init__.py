"""Networks whose outputs are tensors, one file each, and the modules that they share."""
