"""The commit: rows, seam and accounting in one step that a stale owner can't make."""
