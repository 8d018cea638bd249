"""The OpenAPI 3.1 document of a door, put together from its operations and the models of the contract. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from core.problem import Problem

Json = dict[str, Any]
Mode = Literal["validation", "serialization"]
References = Mapping[tuple[type[BaseModel], Mode], Json]
_REF: Final = "#/components/schemas/{model}"
_ANYTHING: Final[Json] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query, path or header."""

    name: str
    schema: Mapping[str, Any]
    description: str = ""
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """What one function does, beside its method and path."""

    summary: str
    tag: str
    who: str
    """Whose call it is, for people; `anybody` needs no credential."""
    answer: type[BaseModel] | None = None
    """None: some JSON object."""
    status: int | str = 200
    """Or a class of them: 2XX."""
    body: type[BaseModel] | None = None
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    others: tuple[tuple[int, type[BaseModel]], ...] = ()
    """Further answers that are no refusal."""
    conditional: bool = False
    """Whether it knows If-None-Match and may answer 304."""
    any_query: bool = False
    """Whether it passes a query on, to be judged behind it."""
    untyped_body: bool = False
    """Whether it takes some JSON object that no model describes."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation where it is served: `path` has its parameters in braces."""

    name: str
    method: str
    path: str
    operation: Operation
    path_parameters: tuple[Parameter, ...] = ()


def document(
    endpoints: Sequence[Endpoint], *, title: str, version: str, server: str, patches: Mapping[str, Json] | None = None
) -> Json:
    """Return the document.

    Args:
        endpoints: Everything that is served.
        title: Of the API.
        version: Of the build.
        server: Base URL.
        patches: Changes to schemas by model name, for what a model alone can not say.
    """
    references, schemas = _schemas(endpoints)
    for name, patch in (patches or {}).items():
        schemas[name] = {**schemas[name], **patch}
    paths: dict[str, Json] = {}
    for one in sorted(endpoints, key=lambda e: (e.path, e.method)):
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "servers": [{"url": server}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _schemas(endpoints: Iterable[Endpoint]) -> tuple[References, dict[str, Json]]:
    bodies = {one.operation.body for one in endpoints if one.operation.body is not None}
    answers = {one.operation.answer for one in endpoints if one.operation.answer is not None} | {Problem}
    answers |= {model for one in endpoints for _, model in one.operation.others}
    models: list[tuple[type[BaseModel], Mode]] = [(model, "validation") for model in sorted(bodies, key=_name)]
    models += [(model, "serialization") for model in sorted(answers, key=_name)]
    references, found = models_json_schema(models, ref_template=_REF)
    return {(model, mode): dict(references[model, mode]) for model, mode in models}, found["$defs"]


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _operation(endpoint: Endpoint, references: References) -> Json:
    operation = endpoint.operation
    found: Json = {
        "operationId": endpoint.name,
        "summary": operation.summary,
        "description": f"For: {operation.who}.",
        "tags": [operation.tag],
        "responses": _responses(operation, references),
        "security": [] if operation.who == "anybody" else [{"apiKey": []}, {"bearer": []}],
    }
    if parameters := [_parameter(one) for one in (*endpoint.path_parameters, *operation.parameters)]:
        found["parameters"] = parameters
    if operation.body is not None or operation.untyped_body:
        schema = _ANYTHING if operation.body is None else references[operation.body, "validation"]
        content = {"application/json": {"schema": schema}}
        found["requestBody"] = {"required": operation.body_required, "content": content}
    return found


def _responses(operation: Operation, references: References) -> Json:
    found: Json = {
        **{str(status): _answer(answer, references) for status, answer in operation.others},
        str(operation.status): _answer(operation.answer, references),
        "default": {
            "description": "Refused, or not possible now.",
            "content": {"application/problem+json": {"schema": references[Problem, "serialization"]}},
        },
    }
    if operation.conditional:
        found["304"] = {"description": "As the caller knows it (If-None-Match)."}
    return found


def _answer(model: type[BaseModel] | None, references: References) -> Json:
    schema = _ANYTHING if model is None else references[model, "serialization"]
    described = model.__doc__ if model is not None and model.__doc__ else "Success."
    return {"description": described, "content": {"application/json": {"schema": schema}}}


def _parameter(parameter: Parameter) -> Json:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "schema": dict(parameter.schema),
        **({"description": parameter.description} if parameter.description else {}),
    }
