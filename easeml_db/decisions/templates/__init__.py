"""Programs, which declare the inputs and outputs of a task, and templates, which say which architectures may learn
them.

program.py    a program as values: fields of the input and of the output
scanning.py   text to tokens with their places
parsing.py    tokens to a program
printing.py   a program to text
catalogue.py  the templates, and the first that matches
storage.py    the columns that keep the examples of a program
"""
