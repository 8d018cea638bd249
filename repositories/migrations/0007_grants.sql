-- What each role may do, and no more; tests/integration/repositories/test_roles.py tries every cell from outside.

-- Orchestrator: DML on dagapp, but audit and events are append-only.
GRANT USAGE ON SCHEMA dagapp, dagqueue TO geodag_orchestrator;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    dagapp.dag_workflows, dagapp.dag_orchestrators, dagapp.dag_workers, dagapp.dag_jobs, dagapp.dag_node_states,
    dagapp.dag_attempts, dagapp.dag_task_results, dagapp.dag_checkpoints, dagapp.dag_settings,
    dagapp.platforms, dagapp.geospatial_assets, dagapp.asset_versions, dagapp.platform_requests,
    dagapp.platform_request_jobs
    TO geodag_orchestrator;
GRANT SELECT, INSERT ON dagapp.dag_job_events, dagapp.asset_audit TO geodag_orchestrator;
GRANT SELECT ON dagapp.schema_migrations TO geodag_orchestrator;
GRANT SELECT, INSERT, UPDATE, DELETE ON dagqueue.messages, dagqueue.dead_letters, dagqueue.consumers
    TO geodag_orchestrator;
GRANT EXECUTE ON FUNCTION dagapp.clock(), dagapp.ensure_event_partitions(integer) TO geodag_orchestrator;

-- Worker: the queue, its fence, its own tables in geo; of dagapp only the clock.
GRANT USAGE ON SCHEMA dagapp, dagqueue, fence TO geodag_worker;
GRANT EXECUTE ON FUNCTION dagapp.clock(), fence.hold(text, text) TO geodag_worker;
GRANT SELECT, UPDATE, DELETE ON dagqueue.messages TO geodag_worker;
GRANT SELECT, INSERT ON dagqueue.dead_letters TO geodag_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON dagqueue.consumers TO geodag_worker;
GRANT USAGE, CREATE ON SCHEMA geo TO geodag_worker;

-- Gateway: its views.
GRANT USAGE ON SCHEMA dagapi TO geodag_gateway;
GRANT SELECT ON dagapi.platforms, dagapi.assets, dagapi.versions, dagapi.requests TO geodag_gateway;

-- Serving: the routing view and whatever a worker puts into geo.
GRANT USAGE ON SCHEMA dagserve, geo TO geodag_serving;
GRANT SELECT ON dagserve.routes TO geodag_serving;
ALTER DEFAULT PRIVILEGES FOR ROLE geodag_worker IN SCHEMA geo GRANT SELECT ON TABLES TO geodag_serving;
