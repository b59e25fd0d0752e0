-- Starting a run: arms and first trials are queued, and a coordinator trains them.

CREATE OR REPLACE FUNCTION easeml.begin_search(
    encoder jsonb,
    train_rows bigint[],
    architectures jsonb,
    search_space jsonb,
    procedure text,
    n_configs integer,
    max_epochs integer,
    seed bigint,
    procedure_options jsonb,
    portfolio jsonb,
    OUT search jsonb,
    OUT failure jsonb
) LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.proposal import begun_search
from easeml_plpy.catalogue.config_memory import within_memory
return within_memory(plpy, GD, begun_search, encoder, train_rows, architectures, search_space, procedure, n_configs,
    max_epochs, seed, procedure_options, portfolio)
$$;
COMMENT ON FUNCTION easeml.begin_search(jsonb, bigint[], jsonb, jsonb, text, integer, integer, bigint, jsonb, jsonb) IS
    'Returns a run''s arms, its first trials and the largest number of trials as a json object, or an error, for '
    'example if no slot has the memory for a trial. train_rows: the rows of each partition (internal).';

CREATE OR REPLACE FUNCTION easeml.select_models(
    dataset text,
    architectures text[] DEFAULT NULL,
    search_space jsonb DEFAULT NULL,
    procedure text DEFAULT NULL,
    n_configs integer DEFAULT NULL,
    max_epochs integer DEFAULT NULL,
    metric text DEFAULT NULL,
    max_seconds double precision DEFAULT NULL,
    seed bigint DEFAULT 0,
    scheduler text DEFAULT 'auto',
    visit_order text DEFAULT 'cyclic',
    procedure_options jsonb DEFAULT NULL,
    allocation text DEFAULT NULL,
    deadline interval DEFAULT NULL,
    max_cost double precision DEFAULT NULL,
    price_list text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.request('select_models', jsonb_build_object('dataset', dataset, 'architectures', architectures,
            'search_space', search_space, 'procedure', procedure, 'n_configs', n_configs, 'max_epochs', max_epochs,
            'metric', metric, 'max_seconds', max_seconds, 'seed', seed, 'scheduler', scheduler, 'visit_order',
            visit_order, 'procedure_options', procedure_options, 'allocation', allocation, 'deadline', deadline,
            'max_cost', max_cost, 'price_list', price_list))::bigint;
END
$$;
COMMENT ON FUNCTION easeml.select_models(text, text[], jsonb, text, integer, integer, text, double precision, bigint,
    text, text, jsonb, text, interval, double precision, text) IS
$$Starts a search for a good model on a dataset and returns the run's id at once. A coordinator trains in the background
once this transaction has committed. Without max_seconds, max_epochs and n_configs the search takes two minutes, or less
if nothing improves any longer.
architectures: which families of models to try, of easeml.architectures (default: those that suit the data).
search_space: which hyperparameters to try, as a json object (default: each architecture's own ranges). A list is a
    choice, an object a range, anything else a fixed value; a key that names an architecture holds values for that
    architecture only. For example {"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": true},
    "batch_size": [32, 256], "mlp": {"hidden_units": [[128], [256, 128]]}}.
procedure: how configs are drawn and how long each trains, one of easeml.procedures (default: race; with max_epochs
    random). A race gives the slots to the architectures whose metric improves fastest, and drops those that no longer
    improve. random and grid train every trial to the end; the others look at the results of an arm (an architecture)
    after each epoch and stop, continue and start its trials. easeml.preview_procedure shows what a run would train.
procedure_options: options that easeml.procedures lists, as a json object, for example {"eta": 3}. {"joint": true}
    searches all architectures at once, {"n_trials": 32} says n_configs.
n_configs: how many trials to make (default: race as many as there is time for, at most 64 of each architecture; random
    8; grid all; the others, in each arm, as many as max_epochs needs).
max_epochs: how often a trial meets all training rows, at most (default: 100). With max_epochs and without max_seconds
    no decision depends on a clock, and the same seed gives the same bytes.
metric: what ranks the trials, one of easeml.metrics (default: that of the dataset's first run; for the first run
    accuracy for labels and rmse for numbers). Trials rank by their best epoch on the validation rows. Only trials of
    runs that rank by the metric of the dataset answer without being deployed; see easeml.set_serving_metric.
max_seconds: when to cut training short, in seconds (default: 120; none with max_epochs or n_configs). The run then
    tests its best trial and ends as finished, its other unfinished trials as stopped.
seed: the same data, arguments and seed give the same result, unless a time limit cuts it short (default: 0).
    easeml.replay proves any trial.
scheduler: which trial trains next on which slot, one of easeml.schedulers (default: auto). auto simulates
    longest_remaining and rotation before the run and takes the shorter.
visit_order: in which order a trial visits the partitions, cyclic or free (default: cyclic). cyclic is fixed
    beforehand, so failures and timing change no byte of the result; with free the scheduler chooses them, too.
allocation: how many slots a trial may have: hopping, batched, data_parallel, water_filling, auto or planned (default:
    hopping; with max_seconds batched). hopping: each trial has one slot at a time. batched: hopping, but trials that
    differ only in numbers such as the learning rate train on one slot as one computation where that is faster.
    data_parallel: one trial after another uses all slots. water_filling: slots follow the work that each trial has
    left. auto: data_parallel when few trials remain for many slots. planned: slots come and go stage by stage, as
    easeml.plan says. Only hopping gives the same bytes whatever slots there are.
deadline: the time from now by which the run should end, such as '20 minutes'; the run is then planned. The plan has the
    least cost with which the run ends in time in 95 of 100 cases. A deadline that cannot be kept is refused. With
    max_seconds, too, the search may end unfinished: whichever of the two comes first cuts it short.
max_cost: what a planned run may cost at most; a run that would cost more ends with what it has. A limit that cannot be
    kept is refused.
price_list: what the slots of a planned run cost, one of easeml.prices (default: local).
easeml.plan shows the plan beforehand, easeml.plan_revisions how it changed, easeml.plan_accuracy how it turned out.$$;
