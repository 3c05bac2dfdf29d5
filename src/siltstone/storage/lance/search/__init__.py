"""What Lance's indexes are, and what is asked of them: vectors, words, and the rows left out."""
