#!/usr/bin/env python3
"""Widens the feed-forward parts of a model with zeros: the same text at the price of a large model.

usage: make-wide-model.py IN.gguf LENGTH OUT.gguf

The new rows of ffn_gate and ffn_up and the new columns of ffn_down are zero, so the logits stay
the same, while generation has to read the larger matrices. For measurements of drafts with a model
that predicts text and is limited by memory; no test needs it. Only Q8_0 and F32 matrices: their
zeros are zero bytes.
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import quant_shape_to_byte_shape

LENGTH_KEY = "lrnn.feed_forward_length"


def widened(tensor, length):
    """The rows of a tensor; those of a feed-forward part with zeros up to `length`."""
    rows = tensor.data
    if not any(part in tensor.name for part in ("ffn_gate", "ffn_up", "ffn_down")):
        return rows
    columns = int(tensor.shape[0])
    shape = (len(rows), length) if "ffn_down" in tensor.name else (length, columns)
    if tensor.tensor_type == GGMLQuantizationType.Q8_0:
        shape = quant_shape_to_byte_shape(shape, tensor.tensor_type)
    elif tensor.tensor_type != GGMLQuantizationType.F32:
        sys.exit(f"{tensor.name}: type is {tensor.tensor_type.name}, expected Q8_0 or F32")
    wide = np.zeros(shape, rows.dtype)
    wide[: rows.shape[0], : rows.shape[1]] = rows
    return wide


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, length, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    reader = GGUFReader(source)
    writer = GGUFWriter(out, "lrnn")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = length if key == LENGTH_KEY else field.contents()
        sub_type = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, field.types[0], sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, widened(tensor, length), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
