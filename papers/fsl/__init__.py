"""Federated learning with server learning (Mai, La and Zhang, 2022): a runnable study."""
