"""lrnn-convert: converts trained checkpoints of linear recurrent language models to GGUF."""

__version__ = "0.3.0"

# What model files say. A release that writes the same bytes as before does not change it, so that
# files can be reproduced.
OUTPUT_VERSION = "0.1.0"
