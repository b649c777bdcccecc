"""What is measured: names, directions, and figures over seeds."""
