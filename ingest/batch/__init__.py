"""One batch: what it reads, which rows it replaces, which files it writes."""
