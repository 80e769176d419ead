"""The schemas of records: asked for at a registry, named by a person, and compiled from Protobuf's text."""
