"""Federated learning with server learning (Mai, La and Zhang, 2022): studies of its tables and figures."""
