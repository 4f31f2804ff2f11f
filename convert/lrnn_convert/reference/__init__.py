"""Runs in the Python environment of the library that defines a checkpoint, not in our own."""
