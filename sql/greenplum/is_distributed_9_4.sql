c.relkind = 'r' AND p.policytype = 'p' AND NOT EXISTS (
            SELECT 1 FROM pg_class s WHERE s.relstorage NOT IN ('h', 'a', 'c') AND (s.oid = c.oid
                OR s.oid IN (SELECT l.parchildrelid FROM pg_partition_rule l JOIN pg_partition g ON g.oid = l.paroid
                    WHERE g.parrelid = c.oid)))
        AND (EXISTS (SELECT 1 FROM pg_partition g WHERE g.parrelid = c.oid)
            OR NOT EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = c.oid))
