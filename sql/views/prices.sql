CREATE VIEW easeml.prices WITH (security_invoker) AS
SELECT l.price_list, t.instance_type, t.device_kind, t.n_slots, t.price_per_hour, t.billed_by, t.billed_per,
    t.minimum_seconds, t.price_per_gb,
    t.queue_seconds, t.queue_sd_seconds, t.start_seconds, t.start_sd_seconds,
    CASE WHEN l.is_local
        THEN (SELECT CASE WHEN count(*) FILTER (WHERE split_part(s.device, ':', 1) = t.device_kind) = 0 THEN 0
            -- Slots that planned runs may add are of the kind that they need.
            ELSE count(*) FILTER (WHERE split_part(s.device, ':', 1) = t.device_kind) + greatest((SELECT p.max_slots
                    FROM easeml.provisioners p WHERE p.provisioner = 'local') - count(*), 0) END::integer
            FROM easeml.slots s WHERE s.status = 'active' AND NOT s.is_added) / t.n_slots
        ELSE t.max_instances END AS max_instances,
    t.speed, l.caveat, l.is_local, l.is_shipped
FROM easeml.price_lists l JOIN easeml.instance_types t USING (price_list);
COMMENT ON VIEW easeml.prices IS
    'Price lists: what slots cost, how they are billed and how long they take to start. easeml.plan uses them.';

COMMENT ON COLUMN easeml.prices.price_list IS 'Name of the list.';
COMMENT ON COLUMN easeml.prices.instance_type IS 'Name of the instance type within its list.';
COMMENT ON COLUMN easeml.prices.device_kind IS 'cpu or cuda.';
COMMENT ON COLUMN easeml.prices.n_slots IS 'Number of slots of an instance.';
COMMENT ON COLUMN easeml.prices.price_per_hour IS 'Price of an instance with all its slots.';
COMMENT ON COLUMN easeml.prices.billed_by IS 'second, or minute: each started minute is billed.';
COMMENT ON COLUMN easeml.prices.billed_per IS
    'instance: from when the provider has it ready until its release; function: only slots on which something trains.';
COMMENT ON COLUMN easeml.prices.minimum_seconds IS 'Seconds billed at least, for each instance.';
COMMENT ON COLUMN easeml.prices.price_per_gb IS 'Price of a GB of the data that each instance brings in once.';
COMMENT ON COLUMN easeml.prices.queue_seconds IS 'Mean wait in the provider''s queue, which is not billed.';
COMMENT ON COLUMN easeml.prices.queue_sd_seconds IS 'Standard deviation of that wait.';
COMMENT ON COLUMN easeml.prices.start_seconds IS 'Mean time until an instance can train, which is billed.';
COMMENT ON COLUMN easeml.prices.start_sd_seconds IS 'Standard deviation of that time.';
COMMENT ON COLUMN easeml.prices.max_instances IS 'Largest number of instances; null: no limit. For this server''s '
    'slots: those in service, and those that planned runs may add.';
COMMENT ON COLUMN easeml.prices.speed IS
    'Speed of one of its slots, relative to the measured slots of its kind of device.';
COMMENT ON COLUMN easeml.prices.caveat IS 'What to know before trusting the figures.';
COMMENT ON COLUMN easeml.prices.is_local IS 'Whether its slots are those of this server.';
COMMENT ON COLUMN easeml.prices.is_shipped IS 'Whether it came with easeml.';
