"""An experiment in a file: read, checked with the line of every mistake, and built."""
