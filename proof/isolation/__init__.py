"""Isolation: clients that write down what they saw, and what it says of the store."""
