"""Protected vectors: what to hide, where it sits, how to hide it, and what is guaranteed."""
