"""API: the interface of a store, declared once, whichever process holds it. Start at `store`."""
