"""Trained models in files: what such a file says, how it is written, read and used."""
