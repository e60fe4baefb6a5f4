"""Parts of the pass promote."""
