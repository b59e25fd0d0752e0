"""Networks whose outputs are tensors: a folder entry each, and the modules that they share."""
