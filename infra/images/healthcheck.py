"""Asks this container's own process whether it lives; the image's HEALTHCHECK runs it."""

import os
import sys
from urllib.request import urlopen

PORTS = {"orchestrator": "ORCHESTRATOR_PORT", "worker": "WORKER_HEALTH_PORT", "serving": "SERVING_PORT"}

with urlopen(f"http://127.0.0.1:{os.environ[PORTS[os.environ['RUN_MODE']]]}/livez", timeout=3) as answer:
    sys.exit(answer.status != 200)
