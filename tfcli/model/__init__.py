"""The model: plain PyTorch that a test builds by hand; knows nothing of configuration files."""
