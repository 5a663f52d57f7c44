"""The three commands."""
