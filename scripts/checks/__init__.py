"""House rules that no ready-made linter knows; `python -m scripts.checks` runs them all."""
