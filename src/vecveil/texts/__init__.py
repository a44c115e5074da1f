"""How texts come in: encoders, tables and the folding of spellings."""
