"""Values as texts: rows for people, and what JSON has no form of its own for."""
