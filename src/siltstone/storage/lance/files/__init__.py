"""What lies in the folder of a dataset: names, manifests, parts, deletion files, addresses."""
