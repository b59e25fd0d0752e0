-- What a run would train, before anything runs.

CREATE OR REPLACE FUNCTION easeml.plan_search(
    architectures jsonb,
    search_space jsonb,
    procedure text,
    n_configs integer,
    max_epochs integer,
    seed bigint,
    procedure_options jsonb,
    OUT rungs jsonb,
    OUT failure jsonb
) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.proposal import preview
from easeml_plpy.server.entry_points import answered_by
return answered_by(plpy, preview, architectures, search_space, procedure, n_configs,
    max_epochs, seed, procedure_options)
$$;
COMMENT ON FUNCTION easeml.plan_search(jsonb, jsonb, text, integer, integer, bigint, jsonb) IS
    'Returns the rungs of a run as a json array, a pure function of its arguments, or an error '
    '(internal: use easeml.preview_procedure).';

-- SECURITY DEFINER, because only easeml.plan_search knows the plan, and it takes whatever it is given. It takes values
-- only, and checks them first. Where partitions are, easeml.choose_architectures has looked up with the caller's
-- rights: the caller may have invented the dataset.
CREATE OR REPLACE FUNCTION easeml.preview_search(
    data easeml.datasets,
    procedure text,
    max_epochs integer,
    n_configs integer,
    procedure_options jsonb,
    architectures text[],
    search_space jsonb,
    seed bigint,
    OUT arm text,
    OUT bracket integer,
    OUT rung integer,
    OUT n_trials integer,
    OUT n_epochs integer,
    OUT total_epochs bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen text[];
    plan record;
BEGIN
    PERFORM easeml.check_search(max_epochs, n_configs, seed, search_space, procedure_options);
    max_epochs := (easeml.complete_budget(procedure, n_configs, max_epochs, NULL) ->> 'max_epochs')::integer;
    IF data.dataset_id IS NOT NULL THEN
        data.placement := 'shared';
        chosen := easeml.choose_architectures(data, architectures);
    ELSE
        chosen := coalesce(architectures, '{mlp}');
        PERFORM easeml.fail('ML001', format('architectures: there is no architecture %s', quote_nullable(a)),
            hint => (SELECT easeml.near_names(a, array_agg(l.architecture)) FROM easeml.list_architectures() l)
                || ' SELECT * FROM easeml.architectures shows all of them.')
        FROM unnest(chosen) a WHERE NOT EXISTS (SELECT FROM easeml.list_architectures() l WHERE l.architecture = a);
    END IF;
    plan := easeml.plan_search(easeml.specifications(chosen, data.encoder -> 'target'), search_space, procedure,
        n_configs, max_epochs, seed, easeml.complete_options(procedure, procedure_options));
    PERFORM easeml.raise_failure(plan.failure);
    RETURN QUERY SELECT CASE WHEN data.dataset_id IS NOT NULL OR architectures IS NOT NULL THEN p.arm END, p.bracket,
        p.rung, p.n_trials, p.n_epochs, p.total_epochs
    FROM jsonb_to_recordset(plan.rungs) p(arm text, bracket integer, rung integer, n_trials integer,
        n_epochs integer, total_epochs bigint);
END
$$;
COMMENT ON FUNCTION easeml.preview_search(easeml.datasets, text, integer, integer, jsonb, text[], jsonb, bigint) IS
    'Returns the rungs of a run on that dataset, which may be NULL, after checking the arguments '
    '(internal: use easeml.preview_procedure).';

CREATE OR REPLACE FUNCTION easeml.preview_procedure(
    procedure text,
    max_epochs integer DEFAULT NULL,
    n_configs integer DEFAULT NULL,
    procedure_options jsonb DEFAULT NULL,
    dataset text DEFAULT NULL,
    architectures text[] DEFAULT NULL,
    search_space jsonb DEFAULT NULL,
    seed bigint DEFAULT 0,
    OUT arm text,
    OUT bracket integer,
    OUT rung integer,
    OUT n_trials integer,
    OUT n_epochs integer,
    OUT total_epochs bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets;
BEGIN
    IF dataset IS NOT NULL THEN
        data := easeml.find_dataset(dataset);
        architectures := easeml.choose_architectures(data, architectures);
    END IF;
    RETURN QUERY SELECT s.* FROM easeml.preview_search(data, procedure, max_epochs, n_configs, procedure_options,
        architectures, search_space, seed) s;
END
$$;
COMMENT ON FUNCTION easeml.preview_procedure(text, integer, integer, jsonb, text, text[], jsonb, bigint) IS
$$Shows what a run would train, with those arguments of easeml.select_models that say what is searched;
it writes nothing. Each row is a rung: at most n_trials trials of a bracket reach n_epochs epochs,
and together they train total_epochs epochs beyond the rung before. Without a dataset and architectures it shows the
plan of one arm. max_epochs: by default 100. For asha and race the figures are upper limits; for pbt a rung is a
round.$$;
