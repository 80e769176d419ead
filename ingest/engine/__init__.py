"""Engines, which run a batch's tasks: in this process, or on Spark."""
