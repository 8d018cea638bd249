"""The two raster workflows of specification 003, as they stand there, completed by inputs and params so that they run.

Nodes, edges, conditions, queues and handler names stay those of the specification; `process_fa`, to which its first
block leads without defining it, is the node beside it on the other queue.
"""

from typing import Any

import yaml

from tests.support.spec_blocks import STRUCTURE, TILED

Json = dict[str, Any]

SOURCE = "{{ inputs.container_name }}/{{ inputs.blob_name }}"
RASTER = "{{ nodes.validate.output.raster }}"
TEXT = {"type": "string", "required": True}
PLACE = {"container_name": TEXT, "blob_name": TEXT, "output_prefix": TEXT}


def structure() -> str:
    """Return `raster_processing` of §8.1."""
    found: Json = yaml.safe_load(STRUCTURE)
    found["inputs"] |= PLACE
    nodes = found["nodes"]
    nodes["validate"]["params"] = {"source": SOURCE}
    nodes["process_docker"]["params"] = {
        "source": SOURCE,
        "raster": RASTER,
        "options": {"target_crs": "{{ inputs.target_crs }}"},
        "output_prefix": "{{ inputs.output_prefix }}",
    }
    nodes["process_fa"] = {**nodes["process_docker"], "queue": "functionapp-tasks"}
    ways = ("process_fa", "process_docker")
    found["outputs"] = {way: f"{{{{ nodes.{way}.output.blob_path | default(none) }}}}" for way in ways}
    return yaml.safe_dump(found, sort_keys=False)


def tiled(above_mb: int = 500) -> str:
    """Return `raster_tiled_processing` of §8.7, cutting what is larger than that; the specification says 500."""
    found: Json = yaml.safe_load(TILED.replace("> 500", f"> {above_mb}"))
    found["inputs"] = {**PLACE, "collection_id": TEXT, "item_id": TEXT, "href": TEXT}
    nodes = found["nodes"]
    raster = {"source": SOURCE, "raster": RASTER}
    made = {**raster, "output_prefix": "{{ inputs.output_prefix }}"}
    nodes["validate"]["params"] = {"source": SOURCE}
    nodes["process_direct"]["params"] = made
    nodes["generate_tiles"]["params"] |= raster
    nodes["process_tiles"]["task"]["params"] |= {**made, "grid": "{{ nodes.generate_tiles.output.grid }}"}
    nodes["finalize"]["params"] = {
        "cog": "{{ nodes.process_direct.output.blob_path | default(none) }}",
        "cog_facts": "{{ nodes.process_direct.output | default(none) }}",
        "tiles": "{{ nodes.merge_tiles.output.results | default(none) }}",
        "grid": "{{ nodes.generate_tiles.output.grid | default(none) }}",
        "raster": RASTER,
        "output_prefix": "{{ inputs.output_prefix }}",
        "collection_id": "{{ inputs.collection_id }}",
        "item_id": "{{ inputs.item_id }}",
        "href": "{{ inputs.href }}",
        "title": "{{ inputs.blob_name }}",
        "version_label": "v1",
    }
    found["outputs"] = {"item": "{{ nodes.finalize.output.stac_item | default(none) }}"}
    return yaml.safe_dump(found, sort_keys=False)
