-- The workflow that makes one version of several files.

UPDATE dagapp.platforms SET allowed_workflows = allowed_workflows || '["raster_collection"]'
WHERE allowed_workflows @> '["raster_ingest"]';
