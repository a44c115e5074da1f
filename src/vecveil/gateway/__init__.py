"""Ways in for other programs: one module a framework, the server, and jobs over many files."""
