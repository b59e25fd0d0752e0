"""A run as a page and a picture: rows of the views in, figures, charts and HTML out.

`timeline` puts recorded units on one axis of active seconds, `figures` computes from them, `wording` writes numbers
for people, `datasets` prepares what the charts draw, `charts` and `picture` draw with Altair, `page` fills a template.
The console shares templates, style, wording and charts. Nothing here asks a database or writes a file.
"""
