"""What the scripts beside this file run in Python."""
