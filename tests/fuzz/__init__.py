"""Fuzzing with hostile text."""
