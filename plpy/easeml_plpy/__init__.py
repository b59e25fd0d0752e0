"""What runs inside the server: two-line PL/Python bodies import their entry points from here.

`plpy` and `GD` arrive as arguments; nothing here imports `plpy`, `psycopg` or the coordinator's package.
"""

__version__ = "0.2.0"
