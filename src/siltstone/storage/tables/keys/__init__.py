"""Key runs: files beside the parts of a base that say at which positions its keys are."""
