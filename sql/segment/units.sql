-- Units of work, called with all that they need: `unit` is the order, `context` what easeml.open_node_unit returned.
-- They commit, so they are procedures.

CREATE FUNCTION easeml_segment.warm_node() RETURNS void LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.nodes.node_units import warm_node
return warm_node(plpy, GD)
$$;
COMMENT ON FUNCTION easeml_segment.warm_node() IS 'Imports what units need, when the session of a slot is opened.';

CREATE PROCEDURE easeml_segment.train_on_node(unit jsonb, context jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.nodes.node_units import train_on_node
return train_on_node(plpy, GD, unit, context, result)
$$;
COMMENT ON PROCEDURE easeml_segment.train_on_node(jsonb, jsonb, jsonb) IS
    'Trains a trial over one partition once, stores the new state here, and returns what the '
    'control server is to record.';

CREATE PROCEDURE easeml_segment.evaluate_on_node(unit jsonb, context jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.nodes.node_units import evaluate_on_node
return evaluate_on_node(plpy, GD, unit, context, result)
$$;
COMMENT ON PROCEDURE easeml_segment.evaluate_on_node(jsonb, jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of one partition, and returns the sums for '
    'the control server to record.';

CREATE PROCEDURE easeml_segment.train_round_on_node(unit jsonb, context jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.nodes.node_units import train_round_on_node
return train_round_on_node(plpy, GD, unit, context, result)
$$;
COMMENT ON PROCEDURE easeml_segment.train_round_on_node(jsonb, jsonb, jsonb) IS
    'Trains a trial over all partitions at once, stores the new state here, and returns what the '
    'control server is to record.';

CREATE PROCEDURE easeml_segment.evaluate_round_on_node(unit jsonb, context jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.nodes.node_units import evaluate_round_on_node
return evaluate_round_on_node(plpy, GD, unit, context, result)
$$;
COMMENT ON PROCEDURE easeml_segment.evaluate_round_on_node(jsonb, jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of all partitions, and returns the sums of each for '
    'the control server to record.';

CREATE PROCEDURE easeml_segment.pilot_on_node(unit jsonb, context jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.nodes.node_units import pilot_on_node
return pilot_on_node(plpy, GD, unit, context, result)
$$;
COMMENT ON PROCEDURE easeml_segment.pilot_on_node(jsonb, jsonb, jsonb) IS
    'Times a few mini-batches of a fresh trial, discards them, and returns how long its units are expected to take.';
