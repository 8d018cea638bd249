"""The orchestrator's routes as an OpenAPI document that says what FastAPI can not know: refusals, and bodies.

Routes read their bodies themselves, so that one limit and one kind of refusal holds for all; here each mutation takes
some JSON object, or what the gateway's contract takes for the same thing.
"""

from typing import Any, Final

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from core import b2b, b2b_assets, b2b_requests
from core.problem import Problem

Json = dict[str, Any]
VERSION: Final = "/api/v1/assets/{asset_id}/versions/{ordinal}"
BODIES: Final = {
    "/api/v1/validate": b2b.SubmitRequest,
    "/api/v1/submit": b2b.SubmitRequest,
    "/api/v1/uploads": b2b.UploadRequest,
    "/api/v1/requests/batch": b2b_requests.BatchRequest,
    "/api/v1/requests/{request_id}/cancel": b2b_requests.CancelRequest,
    "/api/v1/reviews/decisions": b2b_assets.DecisionsRequest,
    "/api/v1/assets/{asset_id}": b2b_assets.ExposureRequest,
    "/api/v1/assets/{asset_id}/clearance": b2b_assets.ClearanceRequest,
    "/api/v1/assets/{asset_id}/unpublish": b2b_assets.UnpublishRequest,
    f"{VERSION}/approve": b2b_assets.ApproveRequest,
    f"{VERSION}/reject": b2b_assets.RejectRequest,
    f"{VERSION}/revoke": b2b_assets.RevokeRequest,
    f"{VERSION}/comments": b2b_assets.CommentRequest,
}


def orchestrator_document(app: FastAPI) -> Json:
    """Return the document of an orchestrator."""
    document: Json = app.openapi()
    models = sorted({*BODIES.values(), Problem}, key=lambda model: model.__name__)
    references, found = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    document.setdefault("components", {}).setdefault("schemas", {}).update(found["$defs"])
    refusal = {"application/problem+json": {"schema": references[Problem, "validation"]}}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            good = {"description": "Done.", "content": {"application/json": {"schema": {}}, "text/plain": {}}}
            bad = {"description": "Refused, or not possible now.", "content": refusal}
            operation["responses"] = {"2XX": good, "default": bad}
            if method in {"post", "put", "patch"}:
                schema = references[BODIES[path], "validation"] if path in BODIES else {"type": "object"}
                operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return document
