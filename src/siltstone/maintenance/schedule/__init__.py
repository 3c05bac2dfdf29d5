"""Schedule: what the owner does in the background, and what it owes."""
