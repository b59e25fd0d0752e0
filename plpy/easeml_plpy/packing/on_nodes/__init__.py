"""Packing of datasets whose rows are on nodes: packed in place, or sent to the node that will hold them.

All nodes do a step first (staging, pieces, assembly); then the control server combines their answers (source_columns,
finishing). The coordinator carries the messages. The control server sees no row.
"""
