"""Networks that read any input as bits: those of ease.ml for tasks that no other template takes."""
