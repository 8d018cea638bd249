"""What the HTTP processes share at their doors: who is calling, and how an error is told."""
