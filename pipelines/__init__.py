"""The plumbing from corpus files to Parquet shards, and back to training batches."""
