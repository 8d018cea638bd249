"""Composition root of the gateway: settings in, `azure.functions.FunctionApp` out."""

import azure.functions as func

from core.status_view import PublicUrls
from edge.identity import build_identity
from function.auth import Authenticator
from function.blueprints import (
    admin_bp,
    asset_bp,
    elsewhere_bp,
    health_bp,
    job_bp,
    platform_bp,
    proxy_bp,
    review_bp,
    status_bp,
)
from function.client import OrchestratorClient
from function.gateway import Gateway
from function.queries import GatewayQueries
from function.settings import GatewaySettings


def build_gateway(settings: GatewaySettings) -> Gateway:
    """Return the gateway's parts; nothing connects before the first request."""
    orchestrator = OrchestratorClient(settings.orchestrator_urls(), settings.gateway_service_key.get_secret_value())
    others = {name: OrchestratorClient(urls, None) for name, urls in settings.proxy_urls().items() if urls}
    return Gateway(
        auth=Authenticator(build_identity(settings)),
        orchestrator=orchestrator,
        targets={"orchestrator": orchestrator, **others},
        version=settings.build_id,
        config=settings.redacted(),
        queries=GatewayQueries(settings.conninfo),
        urls=PublicUrls(
            gateway=settings.public_gateway_url,
            serving=settings.public_serving_url,
            external=settings.public_external_url,
        ),
    )


def create_app(gateway: Gateway) -> func.FunctionApp:
    """Return the app with every blueprint registered."""
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    blueprints = (
        platform_bp,
        asset_bp,
        review_bp,
        job_bp,
        status_bp,
        admin_bp,
        proxy_bp,
        health_bp,
        elsewhere_bp,
    )
    for blueprint in blueprints:
        app.register_functions(blueprint.build(gateway))
    return app
