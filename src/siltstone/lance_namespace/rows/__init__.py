"""Rows: the operations of the specification on rows, columns, tags and indexes.

    operations      all of them by name: what each takes, and whether it writes
      queries writes creation columns tags indexes    the operations, by what they are about
      statements    what they do with a transaction
      row_query selection    which rows and columns a query asks for
      arrow_input   the rows of a request
      version_numbers    the number that is a table's version, and the seq it stands for
      bodies members     requests and answers, as types

Each takes a scope, a table's name and a request, and returns an answer and the seq that it shows or
committed. A server answers with the same functions: what is HTTP alone is there.
"""
