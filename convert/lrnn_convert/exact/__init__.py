"""Exact models: weights that are computed instead of trained, so that the answer to every input is
known. This is a compiler, of which the converter is the back end:

    regular expression (regex) or text (automaton)  →  minimal automaton (dfa)
    permutations and resets (permutations)          →  one layer of reflections (householder)
    any other automaton → cascade (cascade, cover)  →  several layers (layers)
    parity and addition modulo m by hand            →  diagonal, rwkv7, rotation

catalog.py lists the models that ship, commands.py has the command lines `automaton` and `exact`.

An exact model is a checkpoint in the layout of the library that defines its family. Its weights are
zeros and a few powers of two, and it is converted like any other checkpoint. Each one has a twin
with the same tensors and eigenvalues in [0,1], which cannot solve the task.
"""
