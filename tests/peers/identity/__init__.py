"""The managed identity's endpoint on loopback: see `server`."""
