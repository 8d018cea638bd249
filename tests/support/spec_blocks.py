"""Two workflows of specification 003 as they stand there: §8.1 and §8.7."""

STRUCTURE = """\
workflow_id: raster_processing
name: Raster Processing Pipeline
version: 1

inputs:
  container_name:
    type: string
    required: true
  blob_name:
    type: string
    required: true
  target_crs:
    type: string
    default: "EPSG:3857"

nodes:
  START:
    type: start
    next: validate

  validate:
    type: task
    handler: raster_validate
    queue: functionapp-tasks
    params:
      container_name: "{{ inputs.container_name }}"
      blob_name: "{{ inputs.blob_name }}"
    next: route_by_size

  route_by_size:
    type: conditional
    condition_field: "{{ nodes.validate.output.file_size_mb }}"
    branches:
      - condition: "< 100"
        next: process_fa
      - default: true
        next: process_docker

  process_docker:
    type: task
    handler: raster_cog_docker
    queue: container-tasks
    timeout_seconds: 7200
    params:
      source_url: "{{ nodes.validate.output.blob_url }}"
    next: END

  END:
    type: end
"""

TILED = """\
workflow_id: raster_tiled_processing
name: "Tiled Raster Processing with Size-Based Routing"
version: "1.0"

nodes:
  start:
    type: start
    next: [validate]

  validate:
    handler: raster.validate
    next: [route_by_size]

  route_by_size:
    type: conditional
    condition: "{{ nodes.validate.output.file_size_mb }} > 500"
    on_true: generate_tiles    # Large -> tile and parallelize
    on_false: process_direct   # Small -> process directly

  # Branch A: Direct processing for small files
  process_direct:
    handler: raster.create_cog
    queue: container-tasks
    next: [finalize]

  # Branch B: Tiled processing for large files
  generate_tiles:
    type: task
    handler: raster.generate_tiling_scheme
    params:
      tile_size_mb: 50
    next: process_tiles

  process_tiles:
    type: fan_out
    source: "{{ nodes.generate_tiles.output.tile_list }}"
    task:
      handler: raster.process_tile
      queue: container-tasks
      params:
        tile: "{{ item }}"
        tile_index: "{{ index }}"
      timeout_seconds: 3600
    next: merge_tiles

  merge_tiles:
    type: fan_in
    aggregation: collect
    next: finalize

  # Both branches converge
  finalize:
    depends_on:
      any_of: [process_direct, merge_tiles]
    handler: raster.stac_register
    next: [end]

  end:
    type: end
"""
