"""The owner of a table: the loop of batches and commits, and the turns of several tables."""
