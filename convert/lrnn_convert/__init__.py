"""lrnn-convert: converts trained checkpoints of linear recurrent language models to GGUF."""

__version__ = "0.3.0"
