"""What differs between a table at two seqs: its rows, streamed."""
