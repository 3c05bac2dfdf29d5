"""Lance namespace: the store as other Lance clients see it, by the Lance Namespace specification.

    client     the classes that pylance and LanceDB take; alone imports `lance_namespace`
    catalog    one entry for all operations, by name, over plain values
      namespaces, tables, versions    the operations, by what they are about
      rows        those on rows, columns, tags and indexes; servers use them, too
      requests    what a request's members mean
    scopes     where operations go: the newest seq, a transaction, a snapshot
    statements    what such a client does in a transaction: its versions are imported
    fresh      keyed tables, with rows that are not merged, as versions to read
    directory  a list of the tables for clients that know nothing of siltstone

The room is below the handles and the store; it knows a store by the protocols in `scopes`.
"""
