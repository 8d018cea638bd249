"""A deterministic simulation of the engine: real services, real PostgreSQL, virtual time, faults by seed."""
