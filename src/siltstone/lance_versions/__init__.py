"""Lance versions: a table as numbered versions, as other Lance clients see and make them.

    table_versions       a table at one seq, with its versions
    version_statements   what such a client does in a transaction: its versions are imported
    fresh                keyed tables, with rows that are not merged, as versions to read
    turns                commits to one table follow each other
    errors               what is wrong with a request, by the codes of the specification

The handles of a store are made of it. The operations of the specification stand above them, in
`lance_namespace`.
"""
