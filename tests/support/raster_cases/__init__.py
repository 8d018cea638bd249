"""Acceptance cases of rasters: inputs of every kind, what must become of each, and how that is seen."""
