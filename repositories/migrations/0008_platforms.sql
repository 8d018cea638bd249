-- The three platforms of specification 003 §13.2.

INSERT INTO dagapp.platforms
    (platform_id, display_name, required_refs, version_ref, allowed_sources, allowed_workflows, collection_prefix)
VALUES
    ('ddh', 'Data Hub', '["dataset_id", "resource_id"]', 'version_id',
     '[{"container": "bronze", "prefix": "uploads/ddh/"}, {"container": "bronze", "prefix": "ddh/"}]',
     '["raster_ingest"]', 'ddh-'),
    ('arcgis', 'ArcGIS', '["item_id", "layer_index"]', 'version',
     '[{"container": "bronze", "prefix": "uploads/arcgis/"}, {"container": "bronze", "prefix": "arcgis/"}]',
     '["raster_ingest"]', 'arcgis-'),
    ('geonode', 'GeoNode', '["uuid"]', 'version',
     '[{"container": "bronze", "prefix": "uploads/geonode/"}, {"container": "bronze", "prefix": "geonode/"}]',
     '["raster_ingest"]', 'geonode-');
