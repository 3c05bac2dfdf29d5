"""Proof: that the tests would notice if a guarantee did not hold. Nothing of it is installed."""
