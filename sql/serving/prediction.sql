-- Prediction. The functions that predict run with the rights of the role that asks, because only there current_user is
-- true, also below SET ROLE and inside another's SECURITY DEFINER function. They leave that name with the session, in
-- PL/Python's GD, which only a superuser's code can write. easeml.open_serving alone runs with the owner's rights: it
-- takes the name from there, takes values only, and refuses without a name.

CREATE OR REPLACE FUNCTION easeml.open_serving(
    dataset text,
    trial_id bigint,
    OUT serving_trial_id bigint,
    OUT failure jsonb
) LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction.serving import open_serving
return open_serving(plpy, GD, dataset, trial_id)
$$;
COMMENT ON FUNCTION easeml.open_serving(text, bigint) IS
    'Restores the trial that answers for the role that called a predicting function, and keeps it in the session; '
    'returns the trial or an error (internal: refuses direct calls).';

-- for each
--  form    | type
--  json    | text
--  numbers | bytea
--  bytes   | bytea
CREATE OR REPLACE FUNCTION easeml.predict_{form}(
    dataset text,
    inputs {type},
    trial_id bigint,
    OUT label text,
    OUT probability double precision,
    OUT value double precision,
    OUT serving_trial_id bigint,
    OUT clipped text[],
    OUT failure jsonb
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction.prediction import predict_{form}
return predict_{form}(plpy, GD, dataset, inputs, trial_id)
$$;
-- end for each
COMMENT ON FUNCTION easeml.predict_json(text, text, bigint) IS
    'Predicts for one row given as a json object; returns the prediction or an error (internal).';
COMMENT ON FUNCTION easeml.predict_numbers(text, bytea, bigint) IS 'Predicts for one row given as easeml.array_bytes '
    'of an array of double precision; returns the prediction or an error (internal).';
COMMENT ON FUNCTION easeml.predict_bytes(text, bytea, bigint) IS
    'Predicts for one row given as 8-bit values; returns the prediction or an error (internal).';

CREATE OR REPLACE FUNCTION easeml.class_probabilities(
    dataset text,
    given text,
    inputs bytea,
    trial_id bigint,
    OUT probabilities jsonb,
    OUT failure jsonb
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction.probabilities import class_probabilities
return class_probabilities(plpy, GD, dataset, given, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.class_probabilities(text, text, bytea, bigint) IS
    'Returns the probabilities of all classes for one row, given as json in UTF8, as numbers by easeml.array_bytes, or '
    'as bytes of an image, or an error (internal).';

-- All of these call Python themselves, in an expression that PL/pgSQL keeps: a query around that call takes longer than
-- the call.
-- for each
--  type     | form    | passed                                         | as_bytes
--  anyarray | numbers | easeml.array_bytes(inputs::double precision[]) | easeml.array_bytes(inputs::double precision[])
--  jsonb    | json    | inputs::text                                   | convert_to(inputs::text, 'UTF8')
--  text     | json    | inputs                                         | convert_to(inputs, 'UTF8')
--  bytea    | bytes   | inputs                                         | inputs
CREATE OR REPLACE FUNCTION easeml.predict_row(
    dataset text,
    inputs {type},
    trial_id bigint DEFAULT NULL,
    OUT label text,
    OUT probability double precision,
    OUT value double precision,
    OUT serving_trial_id bigint,
    OUT clipped text[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_{form}(dataset, {passed}, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    label := answer.label;
    probability := answer.probability;
    value := answer.value;
    serving_trial_id := answer.serving_trial_id;
    clipped := answer.clipped;
END
$$;

CREATE OR REPLACE FUNCTION easeml.predict(dataset text, inputs {type}, trial_id bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_{form}(dataset, {passed}, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.label;
END
$$;

CREATE OR REPLACE FUNCTION easeml.predict_value(dataset text, inputs {type}, trial_id bigint DEFAULT NULL)
RETURNS double precision LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_{form}(dataset, {passed}, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.value;
END
$$;

CREATE OR REPLACE FUNCTION easeml.predict_probabilities(dataset text, inputs {type}, trial_id bigint DEFAULT NULL)
RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.class_probabilities(dataset, '{form}', {as_bytes}, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.probabilities;
END
$$;
-- end for each

COMMENT ON FUNCTION easeml.predict_row(text, anyarray, bigint) IS
$$Predicts for one row given as an array of numbers, in the order of the dataset's inputs. Returns label and
probability, or value, and the trial that answered.
dataset: your own, or 'tenant.dataset' of a tenant who lets you use it.
A number beyond the range of the training rows counts as the nearest end of that range, and clipped names its input; NaN
counts as missing; infinity is refused.
Use it in LATERAL: SELECT n.id, p.* FROM new_rows n, LATERAL easeml.predict_row('digits', n.pixels) p.$$;
COMMENT ON FUNCTION easeml.predict_row(text, jsonb, bigint) IS
$$Predicts for one row given as a json object of columns, for example to_jsonb(t). Returns label and probability, or
value, and the trial that answered.
A number beyond the range of the training rows counts as the nearest end of that range, and clipped names its input; NaN
counts as missing; infinity is refused.$$;
COMMENT ON FUNCTION easeml.predict_row(text, text, bigint) IS
    'Predicts for one row given as the text of a json object: a literal such as ''{"x": 1}'' selects this form. '
    'Returns label and probability, or value, the trial that answered, and which inputs were clipped.';
COMMENT ON FUNCTION easeml.predict_row(text, bytea, bigint) IS
    'Predicts for one image given as bytea of 8-bit values. Returns label and probability, or value, the trial that '
    'answered, and which inputs were clipped.';

COMMENT ON FUNCTION easeml.predict(text, anyarray, bigint) IS
    'Predicts the label (or the value, as text) of one row given as an array of numbers in the order of the dataset''s '
    'inputs. dataset: your own, or ''tenant.dataset'' of a tenant who lets you use it. trial_id: the trial to ask; by '
    'default the one that easeml.serving shows.';
COMMENT ON FUNCTION easeml.predict(text, jsonb, bigint) IS
    'Predicts the label (or the value, as text) of one row given as a json object, for example to_jsonb(t).';
COMMENT ON FUNCTION easeml.predict(text, text, bigint) IS
    'Predicts the label (or the value, as text) of one row given as the text of a json object.';
COMMENT ON FUNCTION easeml.predict(text, bytea, bigint) IS
    'Predicts the label of one image given as bytea of 8-bit values.';

COMMENT ON FUNCTION easeml.predict_value(text, anyarray, bigint) IS
    'Predicts the value of one row of a regression dataset, given as an array of numbers; NULL for classification.';
COMMENT ON FUNCTION easeml.predict_value(text, jsonb, bigint) IS
    'Predicts the value of one row of a regression dataset, given as a json object; NULL for classification.';
COMMENT ON FUNCTION easeml.predict_value(text, text, bigint) IS
    'Predicts the value of one row of a regression dataset, given as the text of a json '
    'object; NULL for classification.';
COMMENT ON FUNCTION easeml.predict_value(text, bytea, bigint) IS
    'Predicts the value of one image of a regression dataset, given as bytea of 8-bit values; NULL for classification.';

COMMENT ON FUNCTION easeml.predict_probabilities(text, anyarray, bigint) IS
    'Predicts the probability of every class for one row given as an array of numbers in the '
    'order of the dataset''s inputs.';
COMMENT ON FUNCTION easeml.predict_probabilities(text, jsonb, bigint) IS
    'Predicts the probability of every class for one row given as a json object, for example to_jsonb(t): a json '
    'object of labels and probabilities.';
COMMENT ON FUNCTION easeml.predict_probabilities(text, text, bigint) IS
    'Predicts the probability of every class for one row given as the text of a json object.';
COMMENT ON FUNCTION easeml.predict_probabilities(text, bytea, bigint) IS
    'Predicts the probability of every class for one image given as bytea of 8-bit values.';
