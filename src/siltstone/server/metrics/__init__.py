"""Metrics of a served store, in the text format of Prometheus."""
