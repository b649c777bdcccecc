"""What differential privacy costs three methods: `python -m papers.private.table`."""
