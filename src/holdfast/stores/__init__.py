"""Where clients' rows live: on the device, in memory or on disk. Methods and rounds know nothing of it."""
