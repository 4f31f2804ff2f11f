"""Readers of checkpoint formats. They return lazy tensors and never execute what they read."""
