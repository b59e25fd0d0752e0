"""What goes in and what comes out, as a task says it, and the templates that say what learns such a thing.

program.py    a program as values: fields of the input and of the output
scanning.py   text to tokens with their places
parsing.py    tokens to a program
printing.py   a program to text
catalogue.py  the templates, and the first that matches
storage.py    the columns that keep the examples of a program
"""
