"""Rewrites of single ops that the pass canonicalize applies: arithmetic, control flow, shapes and registers."""
