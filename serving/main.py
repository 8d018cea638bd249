"""Starts serving: `python -m serving.main`, configured by the environment."""

import logging
import sys

import uvicorn

from repositories.logs import setup_logging
from repositories.settings import SettingsError
from serving.app import create_app
from serving.settings import ServingSettings

DRAIN_SECONDS = 5


def main() -> int:
    """Serve until SIGTERM; requests under way get five seconds to finish."""
    try:
        settings = ServingSettings.load()
        app = create_app(settings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    setup_logging(settings.log_level, settings.log_format, "serving")
    logging.captureWarnings(True)
    uvicorn.run(
        app,
        host=settings.serving_host,
        port=settings.serving_port,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
