"""The commands, a file for each noun; `siltstone.cli.app` makes one program of them."""
