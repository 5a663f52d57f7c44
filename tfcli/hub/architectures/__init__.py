"""The architectures of Hugging Face, a file each, named after its `model_type`."""
