"""Native: the routes that are siltstone's own, next to those of the Lance Namespace."""
