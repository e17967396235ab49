"""What is kept so as not to be computed twice: vectors of queries, and answers."""
