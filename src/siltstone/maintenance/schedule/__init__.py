"""Schedule: the owner's background work, its scheduler and status."""
