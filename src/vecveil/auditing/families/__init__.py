"""The families of attacks of an audit: each module says which attacks there are and what evidence they get."""
