"""Optimizers, updaters and functions that servers run."""
