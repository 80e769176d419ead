"""The server's processes: started, supervised, replaced and stopped."""
