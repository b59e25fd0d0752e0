"""Evaluation of a trial on rows that it did not train on: scores, curves, matrices, and the inputs that its answers
depend on.

`examine` is the entry point; it runs with the caller's rights, so row-level security decides whose rows it reads.
`answers` reads the rows and keeps the trial's answers for them. The other modules are pure: answers in, rows out. They
use scikit-learn wherever it has the computation.
"""
