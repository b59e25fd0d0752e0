"""Networks that read any input as bits: ease.ml's networks for tasks that match no other template."""
