"""Models built by hand, whose answers are known for every input: state tracking as arithmetic, not as training.

A model here is a checkpoint in the layout of the library that defines its family, made of zeros and a few powers of two, and it is converted like any
other. Every one has a twin with the same tensors and eigenvalues in [0,1], which cannot do the task.
"""

from .catalogue import MODELS, build

__all__ = ["MODELS", "build"]
