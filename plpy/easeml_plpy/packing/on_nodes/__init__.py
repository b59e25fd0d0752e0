"""Datasets whose rows lie on nodes: packed where they are, or sent to where they will be, and put together exactly.

Each step is done on all nodes first (staging, pieces, assembly), and what they found is put together on the control
server (source_columns, finishing). The coordinator carries it from one to the other. The control server sees no row.
"""
