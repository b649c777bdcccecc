"""Many hyper-parameters and seeds of one method, in one compiled program."""
