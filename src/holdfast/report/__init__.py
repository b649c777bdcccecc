"""Results to look at: a page for the browser and figures for a paper."""
