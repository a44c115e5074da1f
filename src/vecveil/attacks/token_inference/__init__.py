"""Token inference: which concept words a text holds, read from its released vector."""
