"""REST: the store for clients in any language, over TCP: Lance Namespace routes and our own."""
