"""An algorithm, a dataset, a model, a codec and a command for Tacit."""
