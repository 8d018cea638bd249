"""What the Azure Functions host imports: the one module of the gateway that builds something at import."""

from function.app import build_gateway, create_app
from function.settings import GatewaySettings

gateway = build_gateway(GatewaySettings.load())
app = create_app(gateway)
