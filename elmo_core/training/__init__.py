"""Training of the biLM: windows of text, the objective, the loop, checkpoints, perplexity."""
