"""Whole models: what is read, what sees what, and how decoding remembers it."""
