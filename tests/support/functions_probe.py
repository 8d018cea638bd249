"""Indexes and invokes the gateway with the real Azure worker library; run by the interpreter of .venv-functions.

Reads calls as JSON from stdin, `[{"function", "method", "url", "headers", "params", "query", "body"}]`, and prints
`{"functions": [...], "answers": [...], "modules": [...], "import_seconds": …}`: the processor's time for the app and
all that it imports. The protobuf classes that the Rust host would inject are plain stand-ins.
"""

import asyncio
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

from azure_functions_runtime import loader
from azure_functions_runtime.bindings.datumdef import Datum
from azure_functions_runtime.bindings.meta import load_binding_registry
from azure_functions_runtime.handle_event import _functions
from azure_functions_runtime.native_invocation import invocation_request_native


class BindingInfo(SimpleNamespace):
    """The wire's binding; directions and data types have the numbers of the SDK's enumerations."""

    inout, out, undefined = 2, 1, None


PROTOS = SimpleNamespace(BindingInfo=BindingInfo, RpcFunctionMetadata=SimpleNamespace, RpcRetryOptions=SimpleNamespace)


def texts(values: dict[str, str]) -> dict[str, Datum]:
    return {name: Datum(value, "string") for name, value in values.items()}


async def invoke(functions: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Call one function as the host would and return its answer as the host would see it."""
    request = {
        "method": Datum(call["method"], "string"),
        "url": Datum(call["url"], "string"),
        "headers": texts(call.get("headers", {})),
        "params": texts(call.get("params", {})),
        "query": texts(call.get("query", {})),
        "body": Datum(call.get("body", "").encode(), "bytes"),
    }
    function_id = functions[call["function"]].function_id
    inputs = [("req", Datum(request, "http"))]
    ok, returned, _, failure, _ = await invocation_request_native("invocation-1", function_id, inputs, {})
    if not ok or returned is None:
        return {"failure": failure}
    return {
        "status": int(returned.value["status_code"].value),
        "headers": {name: value.value for name, value in returned.value["headers"].items()},
        "body": returned.value["body"].value.decode(),
    }


async def main() -> None:
    """Index, invoke every call, print."""
    load_binding_registry()
    began = time.process_time()
    indexed = loader.index_function_app("function_app.py")
    import_seconds = time.process_time() - began
    metadata, _ = loader.process_indexed_function(PROTOS, _functions, indexed, ".")
    functions = {one.name: one for one in metadata}
    answers = [await invoke(functions, call) for call in json.load(sys.stdin)]
    await sys.modules["function_app"].gateway.close()
    bindings = [{"name": one.name, "bindings": [json.loads(raw) for raw in one.raw_bindings]} for one in metadata]
    modules = sorted({name.partition(".")[0] for name in sys.modules})
    found = {"functions": bindings, "answers": answers, "modules": modules, "import_seconds": import_seconds}
    print(json.dumps(found))


asyncio.run(main())
