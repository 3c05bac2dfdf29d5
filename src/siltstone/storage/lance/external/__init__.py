"""Other Lance clients: what they wrote, and the versions and names that they see."""
