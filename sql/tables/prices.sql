-- Price lists: what slots cost, and how long they take to start. Administrators write them, everybody reads them.

CREATE TABLE easeml.price_lists (
    price_list text PRIMARY KEY CHECK (length(price_list) BETWEEN 1 AND 200),
    caveat text,
    is_local boolean NOT NULL DEFAULT false,
    is_shipped boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE easeml.price_lists IS 'Price lists by name; easeml.create_price_list writes them.';
COMMENT ON COLUMN easeml.price_lists.caveat IS 'What to know before trusting the figures.';
COMMENT ON COLUMN easeml.price_lists.is_local IS
    'Whether its slots are those of this server: no more than it has, ready at once.';
COMMENT ON COLUMN easeml.price_lists.is_shipped IS 'Whether it came with easeml.';

CREATE TABLE easeml.instance_types (
    price_list text NOT NULL REFERENCES easeml.price_lists ON DELETE CASCADE,
    instance_type text NOT NULL,
    device_kind text NOT NULL CHECK (device_kind IN ('cpu', 'cuda')),
    n_slots integer NOT NULL CHECK (n_slots BETWEEN 1 AND 4096),
    price_per_hour double precision NOT NULL CHECK (price_per_hour >= 0 AND price_per_hour <= 1e9),
    billed_by text NOT NULL DEFAULT 'second' CHECK (billed_by IN ('second', 'minute')),
    billed_per text NOT NULL DEFAULT 'instance' CHECK (billed_per IN ('instance', 'function')),
    minimum_seconds double precision NOT NULL DEFAULT 0 CHECK (minimum_seconds >= 0 AND minimum_seconds <= 1e7),
    price_per_gb double precision NOT NULL DEFAULT 0 CHECK (price_per_gb >= 0 AND price_per_gb <= 1e9),
    queue_seconds double precision NOT NULL DEFAULT 0 CHECK (queue_seconds >= 0 AND queue_seconds <= 1e7),
    queue_sd_seconds double precision NOT NULL DEFAULT 0 CHECK (queue_sd_seconds >= 0 AND queue_sd_seconds <= 1e7),
    start_seconds double precision NOT NULL DEFAULT 0 CHECK (start_seconds >= 0 AND start_seconds <= 1e7),
    start_sd_seconds double precision NOT NULL DEFAULT 0 CHECK (start_sd_seconds >= 0 AND start_sd_seconds <= 1e7),
    max_instances integer CHECK (max_instances >= 1),
    speed double precision NOT NULL DEFAULT 1 CHECK (speed > 0 AND speed < 'Infinity'),
    PRIMARY KEY (price_list, instance_type)
);
COMMENT ON TABLE easeml.instance_types IS 'What a price list offers: instances with slots of one kind of device.';
COMMENT ON COLUMN easeml.instance_types.price_per_hour IS 'Price of an instance with all its slots.';
COMMENT ON COLUMN easeml.instance_types.billed_by IS 'second, or minute: each started minute is billed.';
COMMENT ON COLUMN easeml.instance_types.billed_per IS 'instance: billed from when the provider has it ready, without '
    'the queue but with its start, until its release; function: only slots on which something trains.';
COMMENT ON COLUMN easeml.instance_types.minimum_seconds IS 'Seconds billed at least, for each instance.';
COMMENT ON COLUMN easeml.instance_types.price_per_gb IS
    'Price of a GB of the data that an instance brings in once, when it starts.';
COMMENT ON COLUMN easeml.instance_types.queue_seconds IS
    'Mean wait in the provider''s queue, not billed; with its standard deviation.';
COMMENT ON COLUMN easeml.instance_types.start_seconds IS
    'Mean time until an instance can train, billed; with its standard deviation.';
COMMENT ON COLUMN easeml.instance_types.max_instances IS 'Largest number of instances; null: no limit.';
COMMENT ON COLUMN easeml.instance_types.speed IS
    'Speed of one of its slots, relative to the measured slots of its kind of device.';

INSERT INTO easeml.price_lists (price_list, caveat, is_local, is_shipped) VALUES
    ('local', 'This server''s slots, at 1 for each slot and hour.', true, true),
    ('aws-p3', 'RubberBand''s figures of 2021: about 3 an hour for p3.2xlarge and 24 for p3.16xlarge in its text, '
        '12.24 for p3.8xlarge as its table 2 implies; section 6.2 says 7.50 for p3.16xlarge. 15 s to start, of a warm '
        'pool. Look up today''s prices.', false, true);
INSERT INTO easeml.instance_types (price_list, instance_type, device_kind, n_slots, price_per_hour,
    minimum_seconds, start_seconds) VALUES
    ('local', 'cpu slot', 'cpu', 1, 1, 0, 0), ('local', 'cuda slot', 'cuda', 1, 1, 0, 0),
    ('aws-p3', 'p3.2xlarge', 'cuda', 1, 3.06, 60, 15), ('aws-p3', 'p3.8xlarge', 'cuda', 4, 12.24, 60, 15),
    ('aws-p3', 'p3.16xlarge', 'cuda', 8, 24.48, 60, 15);
