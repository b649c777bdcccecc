"""Running a federation: the compiled and the debug engine, rows, ledger, history, checkpoints."""
