"""Trials: what becomes of runs that are killed, of files that are damaged and of disks that are full.

A short seeded part runs with the other tests; `make trials` runs as many as there is time for.
"""
