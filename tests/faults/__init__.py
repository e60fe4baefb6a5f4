"""Faults injected into the passes, of the sort people make, and the programs that must notice them."""
