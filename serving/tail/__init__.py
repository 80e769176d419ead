"""What follows the log and the table: tailers feed the hot tier, followers publish snapshots."""
