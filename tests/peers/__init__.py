"""Local stand-ins of services that cannot run here, spoken to with the real clients."""
