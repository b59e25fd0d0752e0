-- The door: how tenants reach the service. They write no table; a public function that writes inserts a request, and
-- what easeml does for it runs with the rights of easeml_owner. docs/design/callers.md says why it is built so.

CREATE OR REPLACE VIEW easeml.requests WITH (security_invoker) AS
SELECT NULL::name AS caller, NULL::text AS action, NULL::jsonb AS arguments, NULL::jsonb AS result
FROM (SELECT) nothing WHERE false;
COMMENT ON VIEW easeml.requests IS 'Always empty: an inserted row is a request, carried out at once for the role that '
    'inserts it (internal: call the functions).';
COMMENT ON COLUMN easeml.requests.caller IS 'The role that asks; a caller cannot choose it.';
COMMENT ON COLUMN easeml.requests.action IS 'What to do: cancel, deploy and so on.';
COMMENT ON COLUMN easeml.requests.arguments IS 'A json object.';
COMMENT ON COLUMN easeml.requests.result IS 'What INSERT ... RETURNING gives back.';

-- Not a column default: a view over this one could put another default in its place. This trigger runs with the rights
-- of whoever inserts, so current_user is true here, and it fires first, since triggers fire in the order of their
-- names.
CREATE OR REPLACE FUNCTION easeml.stamp_caller() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.caller := current_user;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.stamp_caller() IS 'Writes the inserting role into the request (trigger).';
CREATE OR REPLACE TRIGGER request_1_caller INSTEAD OF INSERT
    ON easeml.requests FOR EACH ROW EXECUTE FUNCTION easeml.stamp_caller();

CREATE OR REPLACE FUNCTION easeml.perform_request() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asker name;
BEGIN
    IF jsonb_typeof(NEW.arguments) IS DISTINCT FROM 'object' THEN
        PERFORM easeml.fail('ML001', format('arguments: expected a json object, got %s',
                coalesce(jsonb_typeof(NEW.arguments), 'NULL')), hint => 'Call the functions of the guide instead.');
    END IF;
    -- A user's view over this view would let other roles in.
    IF NOT pg_has_role(NEW.caller, 'easeml_tenant', 'USAGE') THEN
        PERFORM easeml.fail('ML004', format('role %s is no tenant', quote_ident(NEW.caller)),
            hint => 'An administrator makes it one: SELECT easeml.create_tenant(role).');
    END IF;
    asker := easeml.register_tenant(NEW.caller);
    -- Only here, because the service, which begins the runs of tasks, must not wait for a tenant.
    IF NEW.action IN ('select_models', 'resume', 'run_task') THEN
        PERFORM easeml.await_pace(NEW.caller, asker);
    END IF;
    -- By itself: of a CASE the server prepares all branches, each time.
    IF NEW.action = 'select_models' THEN
        NEW.result := easeml.perform_select_models(NEW.caller, asker, NEW.arguments);
        RETURN NEW;
    END IF;
    NEW.result := CASE NEW.action
        WHEN 'begin_dataset' THEN easeml.begin_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'begin_packing' THEN easeml.begin_packing(NEW.caller, asker, NEW.arguments)
        WHEN 'begin_node_job' THEN easeml.begin_node_job(NEW.caller, asker, NEW.arguments)
        WHEN 'begin_refresh' THEN easeml.begin_refresh(NEW.caller, asker, NEW.arguments)
        WHEN 'finish_dataset' THEN easeml.finish_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'drop_dataset' THEN easeml.perform_drop_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'grant_use' THEN easeml.perform_grant_use(NEW.caller, asker, NEW.arguments)
        WHEN 'revoke_use' THEN easeml.perform_revoke_use(NEW.caller, asker, NEW.arguments)
        WHEN 'replicate_dataset' THEN easeml.perform_replicate_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'cancel' THEN easeml.perform_cancel(NEW.caller, asker, NEW.arguments)
        WHEN 'resume' THEN easeml.perform_resume(NEW.caller, asker, NEW.arguments)
        WHEN 'drop_run' THEN easeml.perform_drop_run(NEW.caller, asker, NEW.arguments)
        WHEN 'deploy' THEN easeml.perform_deploy(NEW.caller, asker, NEW.arguments)
        WHEN 'undeploy' THEN easeml.perform_undeploy(NEW.caller, asker, NEW.arguments)
        WHEN 'rollback' THEN easeml.perform_rollback(NEW.caller, asker, NEW.arguments)
        WHEN 'set_serving_metric' THEN easeml.perform_set_serving_metric(NEW.caller, asker, NEW.arguments)
        WHEN 'set_prediction_audit' THEN easeml.perform_set_prediction_audit(NEW.caller, asker, NEW.arguments)
        WHEN 'set_refresh' THEN easeml.perform_set_refresh(NEW.caller, asker, NEW.arguments)
        WHEN 'run_refresh' THEN easeml.perform_run_refresh(NEW.caller, asker, NEW.arguments)
        WHEN 'take_refresh' THEN easeml.perform_take_refresh(NEW.caller, asker, NEW.arguments)
        WHEN 'record_refresh' THEN easeml.perform_record_refresh(NEW.caller, asker, NEW.arguments)
        WHEN 'finish_refresh' THEN easeml.perform_finish_refresh(NEW.caller, asker, NEW.arguments)
        WHEN 'create_task' THEN easeml.perform_create_task(NEW.caller, asker, NEW.arguments)
        WHEN 'alter_task' THEN easeml.perform_alter_task(NEW.caller, asker, NEW.arguments)
        WHEN 'run_task' THEN easeml.perform_run_task(NEW.caller, asker, NEW.arguments)
        WHEN 'drop_task' THEN easeml.perform_drop_task(NEW.caller, asker, NEW.arguments)
        WHEN 'set_labelling_function' THEN easeml.perform_set_labelling_function(NEW.caller, asker, NEW.arguments)
        WHEN 'label_examples' THEN easeml.perform_label_examples(NEW.caller, asker, NEW.arguments)
        ELSE easeml.refuse_action(NEW.action) END;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.perform_request() IS 'Carries out a request with the rights of easeml_owner, for the role '
    'that the trigger before it recorded (trigger).';
CREATE OR REPLACE TRIGGER request_2_perform INSTEAD OF INSERT
    ON easeml.requests FOR EACH ROW EXECUTE FUNCTION easeml.perform_request();

CREATE OR REPLACE FUNCTION easeml.refuse_action(action text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail('ML001', format('action: there is no action %s', quote_nullable(action)),
        hint => 'Call the functions of the guide instead.');
END
$$;
COMMENT ON FUNCTION easeml.refuse_action(text) IS 'Refuses a request for something that does not exist (internal).';

CREATE OR REPLACE FUNCTION easeml.request(action text, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer jsonb;
BEGIN
    INSERT INTO easeml.requests AS r (action, arguments) VALUES (request.action, request.arguments)
    RETURNING r.result INTO answer;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION easeml.request(text, jsonb) IS
    'Requests an action in the name of the current role and returns its result (internal).';

CREATE OR REPLACE FUNCTION easeml.register_tenant(role name) RETURNS name
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    account regrole := quote_ident(role)::regrole;
    found name;
    candidate text := role;
    n integer := 1;
BEGIN
    SELECT t.tenant INTO found FROM easeml.tenant_roles t WHERE t.role = account;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    -- A name with rows belongs to the role that made them, even if that role is gone and this one has the same name.
    WHILE EXISTS (SELECT FROM easeml.tenant_roles t WHERE t.tenant = candidate::name)
        OR EXISTS (SELECT FROM easeml.tenants t WHERE t.tenant = candidate::name)
        OR EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = candidate::name)
            OR EXISTS (SELECT FROM easeml.tenant_usage u WHERE u.tenant = candidate::name)
        OR EXISTS (SELECT FROM easeml.tasks k WHERE k.tenant = candidate::name) LOOP
        n := n + 1;
        candidate := role;
        WHILE octet_length(candidate || '_' || n) > 63 LOOP
            candidate := left(candidate, -1);
        END LOOP;
        candidate := candidate || '_' || n;
    END LOOP;
    INSERT INTO easeml.tenant_roles (tenant, role) VALUES (candidate, account) ON CONFLICT DO NOTHING;
    SELECT t.tenant INTO found FROM easeml.tenant_roles t WHERE t.role = account;
    IF found IS NULL THEN
        PERFORM easeml.fail('ML010', format('role %s became a tenant in another transaction at the same time',
                quote_ident(role)), hint => 'Try again.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.register_tenant(name) IS
    'Returns which tenant a role is; makes it one at its first request (internal).';

-- Roles as a dump names them, see security/dump.sql.
CREATE OR REPLACE FUNCTION easeml.restore_role() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.role := to_regrole(quote_ident(NEW.role_name));
    NEW.role_name := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.restore_role() IS
    'Finds the role that a dump names; if it is missing, the tenant waits for easeml.adopt_tenant (trigger).';
CREATE OR REPLACE TRIGGER restored_role BEFORE INSERT ON easeml.tenant_roles FOR EACH ROW
    WHEN (NEW.role_name IS NOT NULL) EXECUTE FUNCTION easeml.restore_role();

CREATE OR REPLACE FUNCTION easeml.restore_grantee() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.grantee := to_regrole(quote_ident(NEW.grantee_name));
    NEW.grantee_name := NULL;
    RETURN CASE WHEN NEW.grantee IS NOT NULL THEN NEW END;
END
$$;
COMMENT ON FUNCTION easeml.restore_grantee() IS
    'Finds the role that a dump names; if it is missing, nobody has the grant (trigger).';
CREATE OR REPLACE TRIGGER restored_grantee BEFORE INSERT ON easeml.dataset_grants FOR EACH ROW
    WHEN (NEW.grantee_name IS NOT NULL) EXECUTE FUNCTION easeml.restore_grantee();

CREATE OR REPLACE FUNCTION easeml.is_administrator(role name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(role, 'easeml_admin', 'USAGE')
$$;
COMMENT ON FUNCTION easeml.is_administrator(name) IS
    'Returns whether a role may act on the rows of all tenants: members of easeml_admin and superusers (internal).';

CREATE OR REPLACE FUNCTION easeml.is_reserved(account oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- The policy names the roles that see everybody's rows by their numbers, so a renamed one is found, too. An
    -- administrator is a member of what easeml_admin is a member of.
    SELECT pg_get_userbyid(account) ~ '^(pg|easeml)_' OR EXISTS (SELECT FROM pg_policy p, unnest(p.polroles) k(role)
        WHERE p.polrelid = 'easeml.runs'::regclass AND p.polname = 'all_rows' AND (k.role = account
            OR pg_has_role(account, k.role, 'MEMBER') AND NOT coalesce(
                pg_has_role(account, to_regrole('easeml_admin')::oid, 'MEMBER')
                AND pg_has_role(to_regrole('easeml_admin')::oid, k.role, 'MEMBER'), false)))
$$;
COMMENT ON FUNCTION easeml.is_reserved(oid) IS 'Returns whether a role belongs to PostgreSQL or to easeml: by its '
    'name, or as a role or member of the service, as superusers are; administrators are none (internal).';

CREATE OR REPLACE FUNCTION easeml.check_json(argument text, value jsonb, max_bytes integer, max_depth integer)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(value::text) > max_bytes THEN
        PERFORM easeml.fail('ML001',
            format('%s: expected at most %s bytes of json, got %s', argument, max_bytes, octet_length(value::text)));
    ELSIF jsonb_path_exists(value, format('$.**{%s}', max_depth)::jsonpath) THEN
        PERFORM easeml.fail('ML001', format('%s: expected json nested at most %s deep', argument, max_depth));
    ELSIF jsonb_path_exists(value, '$.** ? (@.type() == "number" && (@ > 1e308 || @ < -1e308))') THEN
        PERFORM easeml.fail('ML001', format('%s: expected numbers between -1e308 and 1e308', argument));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_json(text, jsonb, integer, integer) IS
    'Refuses json that is too large, nested too deep, or has numbers that no computation can hold (internal).';
