"""The console: pages in a browser about tasks and runs, for whoever logs in as a role of the database.

settings.py    what `easeml console` was asked for
logins.py      who is logged in, in this process alone
rows.py        what a role sees, over a connection of that role
curves.py      learning curves as lines of an SVG, a pure function
pictures.py    examples and answers as PNG
pages.py       the pages
app.py         the application: security headers, logins, errors

Nothing is shown that the role could not ask in SQL: each page opens a connection of that role. Pages have no script.
"""
