"""Remembering a run: its state between rounds, history, ledger of bytes, identity and checkpoints."""
