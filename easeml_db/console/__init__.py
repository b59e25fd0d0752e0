"""The console: pages in a browser about tasks and runs, for users who log in as a role of the database.

settings.py    the options of `easeml console`
logins.py      who is logged in, in this process alone
shares.py      how many threads each login may hold
rows.py        what a role sees, over a connection of that role
pictures.py    examples and answers as PNG, learning curves as SVG
pages.py       the pages
app.py         the application: security headers, logins, errors

A page shows only what the role could query in SQL, because it opens a connection as that role. Pages have no script.
Leaderboard, curves and style are the report's (easeml_db.report).
"""
