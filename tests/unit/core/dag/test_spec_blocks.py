"""Each YAML block of the specification, in the frame that its test states, means the same as its canonical form.

A block that is only `nodes:` gets a head; what it names and does not define is appended. Handlers of the specification
that this build does not have are in the test's catalog, and take any params.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.dag.aliases import HANDLERS, QUEUES
from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.handler_models import AnyOutput, AnyParams
from core.handlers_catalog import CATALOG, KNOWN_QUEUES, HandlerSpec
from tests.support.spec_blocks import STRUCTURE, TILED

HEAD = "workflow_id: block\nversion: 1\n"
NAMES = (*CATALOG, "finalize")
ANY: Mapping[str, HandlerSpec] = {
    name: replace(CATALOG["echo"], name=name, params=AnyParams, output=AnyOutput) for name in NAMES
}


def loaded(text: str) -> Workflow:
    """Load with the test's catalog."""
    return load_workflow(text, "block.yaml", catalog=ANY)


ECHO_TEST = """\
workflow_id: echo_test
nodes:
  start:
    type: start
    next: [echo_handler]
  echo_handler:
    type: task
    handler: echo
    next: [end]
  end:
    type: end
"""

ROUTING = """\
nodes:
  validate:
    handler: raster_validate
    queue: functionapp-tasks    # Quick check -> light worker
    next: process

  process:
    handler: raster_cog_docker
    queue: container-tasks      # Heavy lifting -> GDAL worker
    next: END
"""

CONDITIONAL = """\
nodes:
  validate:
    handler: raster.validate
    next: [route_by_size]

  route_by_size:
    type: conditional
    condition: "{{ nodes.validate.output.file_size_mb }} > 100"
    on_true: process_heavy      # Large file -> container worker
    on_false: process_light     # Small file -> function app

  process_heavy:
    handler: raster.process
    queue: container-tasks
    next: [merge]

  process_light:
    handler: raster.process
    queue: functionapp-tasks
    next: [merge]

  merge:
    depends_on:
      any_of: [process_heavy, process_light]  # Whichever ran
    handler: finalize
"""

RETRY = """\
nodes:
  process:
    type: task
    handler: raster_cog_docker
    retry:
      max_attempts: 5        # 5 retries allowed (6 total attempts)
      backoff: fixed
      initial_delay_seconds: 1
    timeout_seconds: 30
    next: end
"""

FAN_OUT = """\
nodes:
  prepare:
    type: task
    handler: echo
    params:
      item_list: "{{ inputs.item_list }}"
    next: split

  split:
    type: fan_out
    source: "{{ nodes.prepare.output.echoed_params.item_list }}"
    task:
      handler: echo
      queue: dag-worker-tasks
      params:
        item_value: "{{ item }}"
        item_index: "{{ index }}"
      timeout_seconds: 60
    next: aggregate

  aggregate:
    type: fan_in
    aggregation: collect
    next: end
"""

BLOCKS = {
    "003 4.3 echo_test, without a version": (
        ECHO_TEST.replace("nodes:", "version: 1\nnodes:"),
        """\
workflow_id: echo_test
version: 1
nodes:
  start: {type: start, next: [echo_handler]}
  echo_handler: {type: task, handler: echo, next: [end]}
  end: {type: end}
""",
    ),
    "003 5.4 queue routing": (
        HEAD + ROUTING + "  START: {type: start, next: validate}\n  END: {type: end}\n",
        HEAD
        + """\
nodes:
  validate: {type: task, handler: raster.validate, queue: functionapp-tasks, next: [process]}
  process: {type: task, handler: raster.create_cog, queue: container-tasks, next: [END]}
  START: {type: start, next: [validate]}
  END: {type: end}
""",
    ),
    "003 8.1 structure": (
        STRUCTURE + "  process_fa: {handler: raster_cog_docker, next: END}\n",
        """\
workflow_id: raster_processing
name: Raster Processing Pipeline
version: 1
inputs:
  container_name: {type: string, required: true}
  blob_name: {type: string, required: true}
  target_crs: {type: string, default: "EPSG:3857"}
nodes:
  START: {type: start, next: [validate]}
  validate:
    type: task
    handler: raster.validate
    queue: functionapp-tasks
    params: {container_name: "{{ inputs.container_name }}", blob_name: "{{ inputs.blob_name }}"}
    next: [route_by_size]
  route_by_size:
    type: conditional
    condition_field: "{{ nodes.validate.output.file_size_mb }}"
    branches: [{condition: "< 100", next: [process_fa]}, {default: true, next: [process_docker]}]
  process_docker:
    type: task
    handler: raster.create_cog
    queue: container-tasks
    timeout_seconds: 7200
    params: {source_url: "{{ nodes.validate.output.blob_url }}"}
    next: [END]
  END: {type: end}
  process_fa: {type: task, handler: raster.create_cog, next: [END]}
""",
    ),
    "003 8.4 conditional routing": (
        HEAD + CONDITIONAL + "    next: end\n  start: {type: start, next: validate}\n  end: {type: end}\n",
        HEAD
        + """\
nodes:
  start: {type: start, next: [validate]}
  validate: {type: task, handler: raster.validate, next: [route_by_size]}
  route_by_size:
    type: conditional
    condition: "{{ nodes.validate.output.file_size_mb }} > 100"
    on_true: [process_heavy]
    on_false: [process_light]
  process_heavy: {type: task, handler: raster.create_cog, queue: container-tasks, next: [merge]}
  process_light: {type: task, handler: raster.create_cog, queue: functionapp-tasks, next: [merge]}
  merge: {type: task, handler: finalize, depends_on: {any_of: [process_heavy, process_light]}, next: [end]}
  end: {type: end}
""",
    ),
    "003 12.3 retry policy": (
        HEAD + RETRY + "  start: {type: start, next: process}\n  end: {type: end}\n",
        HEAD
        + """\
nodes:
  process:
    type: task
    handler: raster.create_cog
    retry: {max_retries: 5, backoff: fixed, initial_delay_seconds: 1}
    timeout_seconds: 30
    next: [end]
  start: {type: start, next: [process]}
  end: {type: end}
""",
    ),
    "003 8.5 fan-out": (
        HEAD
        + "inputs: {item_list: {type: array, required: true}}\n"
        + FAN_OUT
        + "  start: {type: start, next: prepare}\n  end: {type: end}\n",
        HEAD
        + """\
inputs: {item_list: {type: array, required: true}}
nodes:
  start: {type: start, next: [prepare]}
  prepare: {type: task, handler: echo, params: {item_list: "{{ inputs.item_list }}"}, next: [split]}
  split:
    type: fan_out
    source: "{{ nodes.prepare.output.echoed_params.item_list }}"
    task:
      handler: echo
      queue: functionapp-tasks
      params: {item_value: "{{ item }}", item_index: "{{ index }}"}
      timeout_seconds: 60
    next: [aggregate]
  aggregate: {type: fan_in, aggregation: collect, next: [end]}
  end: {type: end}
""",
    ),
    "003 8.7 tiled processing, whole as it stands": (
        TILED,
        """\
workflow_id: raster_tiled_processing
name: Tiled Raster Processing with Size-Based Routing
version: 1
nodes:
  start: {type: start, next: [validate]}
  validate: {type: task, handler: raster.validate, next: [route_by_size]}
  route_by_size:
    type: conditional
    condition: "{{ nodes.validate.output.file_size_mb }} > 500"
    on_true: [generate_tiles]
    on_false: [process_direct]
  process_direct: {type: task, handler: raster.create_cog, queue: container-tasks, next: [finalize]}
  generate_tiles:
    {type: task, handler: raster.generate_tiling_scheme, params: {tile_size_mb: 50}, next: [process_tiles]}
  process_tiles:
    type: fan_out
    source: "{{ nodes.generate_tiles.output.tile_list }}"
    task:
      handler: raster.process_tile
      queue: container-tasks
      params: {tile: "{{ item }}", tile_index: "{{ index }}"}
      timeout_seconds: 3600
    next: [merge_tiles]
  merge_tiles: {type: fan_in, aggregation: collect, next: [finalize]}
  finalize:
    type: task
    handler: raster.stac_register_item
    depends_on: {any_of: [process_direct, merge_tiles]}
    next: [end]
  end: {type: end}
""",
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_the_specification_means_the_same_as_its_canonical_form(name: str) -> None:
    block, canonical = map(loaded, BLOCKS[name])
    assert block.to_json() == canonical.to_json()
    assert block.definition_hash == canonical.definition_hash
    assert block.retry_policies == canonical.retry_policies
    assert block.graph.incoming.keys() == canonical.graph.incoming.keys()
    for node_id, sources in canonical.graph.incoming.items():
        assert set(block.graph.incoming[node_id]) == set(sources)


def test_max_attempts_of_the_specification_counts_retries() -> None:
    block, _ = map(loaded, BLOCKS["003 12.3 retry policy"])
    assert block.retry_policies["process"].max_retries == 5


def test_aliases_lead_to_names_that_exist_and_are_no_names_themselves() -> None:
    assert set(HANDLERS.values()) <= CATALOG.keys()
    assert set(QUEUES.values()) <= KNOWN_QUEUES
    assert not HANDLERS.keys() & CATALOG.keys()
    assert not QUEUES.keys() & KNOWN_QUEUES


def test_an_alias_that_is_unknown_is_an_error_with_the_known_names() -> None:
    with pytest.raises(Exception, match="handler 'raster_valdate' is unknown; known are"):
        loaded(BLOCKS["003 8.1 structure"][0].replace("raster_validate", "raster_valdate"))
