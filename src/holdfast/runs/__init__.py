"""Runs on disk: what `holdfast run` writes, and what `compare` and `report` read."""
