"""Running rounds."""
