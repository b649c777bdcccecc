"""What clients remember between rounds, and where it lives: on the device, in memory or on disk."""
