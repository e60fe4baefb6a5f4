"""Parts of lower-to-vec: the builder and views, one file for each family of structured ops of mem."""
