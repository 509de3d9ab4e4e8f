"""Other systems fail in the middle of traffic, and come back."""
