"""Namespace: the public name of the classes for pylance and LanceDB. Importing it takes 1 s."""

from siltstone.lance_namespace.client import SiltstoneNamespace, TransactionNamespace

__all__ = ["SiltstoneNamespace", "TransactionNamespace"]
