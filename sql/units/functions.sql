-- Units of work. The coordinator calls them, for each slot in a session of its own. They commit, so they are
-- procedures. A unit is {trial_id, step, kind, epoch, position, partition_number, seed, slot_id, lease_number,
-- attempt}. One of a gang also has gang {token, rank, timeout_seconds, members}; the rank that records it has gang
-- {n_ranks, others}: the other ranks and their results. A whole round is a gang with one rank: all members are on its
-- slot, and what is recorded has n_ranks 1. A batch is {batch: [unit, ...]}, units of several trials on one slot. Each
-- is recorded with batch {rank, n_members}, and with stack [width, place, steps] where it trained as one computation
-- with others.

CREATE OR REPLACE FUNCTION easeml.warm_up() RETURNS void LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.units.warming import warm_up
return warm_up(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.warm_up() IS 'Imports what units need, when the session of a slot is opened (internal).';

CREATE OR REPLACE PROCEDURE easeml.train_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.training import train_unit
return train_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_unit(jsonb, jsonb) IS
    'Trains a trial over one partition once, then records the new state, the unit and its loss in one short '
    'transaction. Refuses if the lease is stale or the step is already recorded.';

CREATE OR REPLACE PROCEDURE easeml.evaluate_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.evaluation import evaluate_unit
return evaluate_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_unit(jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of one partition and records the sums; the last partition of a '
    'split also records the metrics.';

CREATE OR REPLACE PROCEDURE easeml.train_round(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.rounds import train_round
return train_round(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_round(jsonb, jsonb) IS
    'Trains a trial over all partitions at once, for architectures that need all rows, then records the new state and '
    'all units of the round in one short transaction.';

CREATE OR REPLACE PROCEDURE easeml.evaluate_round(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.rounds import evaluate_round
return evaluate_round(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_round(jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of all partitions at once, and records the '
    'sums of each and the metrics.';

CREATE OR REPLACE PROCEDURE easeml.train_batch(batch jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.batch import train_batch
return train_batch(plpy, GD, batch, result)
$$;
COMMENT ON PROCEDURE easeml.train_batch(jsonb, jsonb) IS
    'Trains several trials, each over one partition once; trials of one shape train as one computation where that is '
    'faster. Records all in one short transaction. Returns the errors of those that failed.';

CREATE OR REPLACE PROCEDURE easeml.evaluate_batch(batch jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.batch import evaluate_batch
return evaluate_batch(plpy, GD, batch, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_batch(jsonb, jsonb) IS
    'Measures several trials, each on the validation or test rows of one partition, and records all in one short '
    'transaction. Returns the errors of those that failed.';

CREATE OR REPLACE PROCEDURE easeml.train_gang(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.gang import train_gang
return train_gang(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_gang(jsonb, jsonb) IS
    'Trains a trial over several partitions at once, together with sessions of other slots that call it at the '
    'same time. The first of them records the new state and all units in one short transaction. As a pilot it times a '
    'few steps and records nothing.';

CREATE OR REPLACE PROCEDURE easeml.evaluate_gang(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.gang import evaluate_gang
return evaluate_gang(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_gang(jsonb, jsonb) IS
    'Measures a trial on several partitions at once, one on each slot that calls it at the same time. The first of '
    'them records the sums of all.';

CREATE OR REPLACE PROCEDURE easeml.pilot_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.units.pilot import pilot_unit
return pilot_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.pilot_unit(jsonb, jsonb) IS
    'Times a few mini-batches of a fresh trial, discards them, and records how long the trial''s '
    'units are expected to take.';
