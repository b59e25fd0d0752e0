"""What a trial answers for rows that it did not train on: scores, curves, matrices, and what its answers depend on.

`examine` is the entry point; it runs with the caller's rights, so row-level security decides whose rows it reads.
`answers` reads the rows and keeps what the trial answers for them. The other modules are pure: answers in, rows out.
What scikit-learn computes, it computes here.
"""
