"""Resolves what a caller gives into the inputs that a job stores."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from core.dag.complaints import short_value
from core.dag.definition import PRIORITY_NAMES, Workflow
from core.dag.input_spec import InputSpec, violations
from core.dag.json_values import NotJson, as_stored
from core.errors import CallerError, ParameterInvalid, ParameterMissing
from core.wording import offered, shorten

MOST_TOLD = 5
"""Problems that one refusal tells."""


def resolve_inputs(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every declared input: given values checked, defaults applied, null for the rest.

    Types are checked, never coerced. Null means "not given" unless the type names `null`.
    Raises `ParameterMissing` and `ParameterInvalid`, whose field is `inputs.<name>…`.
    """
    return fit(workflow.inputs, given, workflow.workflow_id)


def fit(specs: Mapping[str, InputSpec], given: Mapping[str, Any], workflow_id: str) -> dict[str, Any]:
    """Return what `resolve_inputs` does, for the inputs of a workflow by themselves."""
    unknown = [name for name in given if name not in specs]
    wrong: list[CallerError] = [_unknown(name, specs, workflow_id) for name in unknown[:MOST_TOLD]]
    untold = len(unknown) - len(wrong)
    fitting: dict[str, Any] = {}
    for name, spec in specs.items():
        try:
            fitting[name] = _fit_one(spec, name, given)
        except CallerError as error:
            wrong.append(error)
    if wrong:
        raise _together(wrong, untold)
    return fitting


def _together(errors: Sequence[CallerError], untold: int) -> CallerError:
    """Return the first error, whose message tells the next ones too: whoever sent several mends them at once."""
    first, others = errors[0], errors[1:MOST_TOLD]
    left = untold + len(errors) - 1 - len(others)
    if others:
        also = "; ".join(shorten(one.detail.message) for one in others)
        message = f"{first.detail.message}; also: {also}{f' (and {left} more)' if left else ''}"
        first.detail = first.detail.model_copy(update={"message": message})
    return first


def _unknown(name: str, specs: Mapping[str, InputSpec], workflow_id: str) -> ParameterInvalid:
    message = f"inputs.{name} is not an input of {workflow_id}; it has {offered(name, specs)}"
    return ParameterInvalid(message, field=f"inputs.{name}")


def _fit_one(spec: InputSpec, name: str, given: Mapping[str, Any]) -> Any:
    field = f"inputs.{name}"
    value = given.get(name)
    if value is None and not (spec.nullable and name in given):
        if spec.is_required:
            raise ParameterMissing(f"{field} is required", field=field, remediation=spec.description or None)
        return spec.default
    try:
        stored = as_stored(value, field)
    except NotJson as error:
        raise ParameterInvalid(error.detail.message, field=field) from error
    for path, problem, found in violations(spec, stored, field):
        raise ParameterInvalid(f"{path} {problem}", field=path, value=short_value(found))
    return stored


def _number_or_name(value: Any) -> Any:
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    raise PydanticCustomError("priority", "expected a whole number or a name")


Priority = Annotated[int | str, BeforeValidator(_number_or_name)]
"""What callers say of a priority; true is not 1, nor is 1.0."""


def resolve_priority(value: int | str | None, default: int) -> int:
    """Return a priority from a number, one of the names, or the default. Raises `ParameterInvalid`."""
    if value is None:
        return default
    number = PRIORITY_NAMES.get(value) if isinstance(value, str) else value
    if number is None or isinstance(number, bool) or not 0 <= number <= 10:
        names = ", ".join(PRIORITY_NAMES)
        raise ParameterInvalid(f"priority must be 0 to 10 or one of {names}", field="priority", value=value)
    return number
