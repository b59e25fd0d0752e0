"""Units and predictions on the segments of a Greenplum cluster."""
