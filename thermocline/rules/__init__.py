"""The rules, each once: bytes to rows, records to winners, keys to bytes, offsets. Values in, values out."""
