"""What the owner tells of commits, without being asked each time."""
