"""A store as a Lance Namespace, for pylance and LanceDB in this process. Importing it takes 1 s."""

from siltstone.namespace.client import SiltstoneNamespace, TransactionNamespace

__all__ = ["SiltstoneNamespace", "TransactionNamespace"]
