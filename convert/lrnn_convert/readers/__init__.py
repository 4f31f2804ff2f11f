"""Readers of container formats. Each gives lazy tensors; none executes anything that it reads."""
