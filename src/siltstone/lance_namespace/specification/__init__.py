"""Specification: the requests and answers of the Lance Namespace specification, as types.

bodies        each request and each answer; a member that is not there is refused by its name
members       what a member is to its operation: read, a hint, or not offered
full_text     what a query asks for words
ids pages     the name that an id stands for, and one page of a list
schema_json   Arrow types as JSON
"""
