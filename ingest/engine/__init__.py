"""What runs a batch's tasks: this process, or Spark."""
