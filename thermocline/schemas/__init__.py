"""The schemas of records: asked for at a registry, and compiled from Protobuf's text."""
