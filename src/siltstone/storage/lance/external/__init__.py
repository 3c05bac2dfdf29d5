"""What other Lance clients wrote: found, checked, imported."""
