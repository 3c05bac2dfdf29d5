"""Keys in order: as bytes that compare as they do, and files of them."""
