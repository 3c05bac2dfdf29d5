"""Lance namespace: the store as other Lance clients see it, by the Lance Namespace specification.

    client        the classes that pylance and LanceDB take; alone imports `lance_namespace`
    operations    the table of all operations: name, address, effect, function
      namespaces, tables, versions, columns, tags, indexes, rows    them, by what they are about
    scope         where operations go: the newest seq, a transaction, a snapshot
    specification their requests and answers, as types

The room is above the handles and the store; REST and joined stores answer by it, too.
"""
