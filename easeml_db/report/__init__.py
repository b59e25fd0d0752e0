"""A run as a page and a picture: rows of the views in, figures, charts and HTML out.

`timeline` puts recorded units on one axis of active seconds, `figures` computes from them, `wording` writes numbers
for people, `datasets` prepares what the charts draw, `charts` and `picture` draw with Altair, `page` writes HTML.
Nothing here asks a database or writes a file. Only `charts` and what imports it need the extra `easeml-db[report]`.
"""
