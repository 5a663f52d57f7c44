"""Train, decode and evaluate Transformers from parts that a configuration names."""

__version__ = "0.1.0"
