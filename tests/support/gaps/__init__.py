"""One caller stopped after each of its statements, and another whose whole transactions run in such a gap."""
