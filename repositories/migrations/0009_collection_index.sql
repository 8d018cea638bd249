-- The door to a STAC collection asks whether one of its versions is visible.
CREATE INDEX asset_versions_collection_idx ON dagapp.asset_versions USING btree (stac_collection_id) WHERE stac_collection_id IS NOT NULL;
