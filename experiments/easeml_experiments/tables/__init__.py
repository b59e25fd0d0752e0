"""Real tables: what `easeml.select_models` finds on them by itself, beside what a user would run outside.

table.py       what is declared of a table        catalogue.py  which tables there are
sources.py     how they are read, from packages that carry data (pure but for the files)
loading.py     a table into PostgreSQL, with the types that a user would give it
splitting.py   which row the product put into which split
ours.py        the product, asked through SQL
encoding.py    the rows as libraries outside want them    rivals.py  what is fitted to them
scoring.py     scores on test rows and their standard errors (pure)
kept.py        results as files, so that nothing runs twice
comparison.py  measures and tables (pure)    plots.py   charts    experiment.py   all of it
__main__.py    one rival in a process of its own
"""
