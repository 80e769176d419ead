"""Kafka: reading the log exactly, its administration, writing dead letters. Alone they know its client."""
