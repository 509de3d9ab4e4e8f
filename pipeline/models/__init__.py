"""The embedding models and language models that settings can name."""
