"""Is the adviser right? Problems whose best method is known from a full search, and what was advised."""
