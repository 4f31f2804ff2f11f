"""Exact models: weights built by hand, so that the answer to every input is known.

An exact model is a checkpoint in the layout of the library that defines its family. Its weights are
zeros and a few powers of two, and it is converted like any other checkpoint. Each one has a twin
with the same tensors and eigenvalues in [0,1], which cannot solve the task.
"""
