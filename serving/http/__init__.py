"""The HTTP API: connections, requests, endpoints and what they answer."""
