"""`python -m easeml_db` is the command `easeml`."""

from easeml_db.cli import main

main()
