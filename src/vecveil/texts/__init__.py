"""Read and encode texts: encoders, tables, and the folding of equal spellings."""
