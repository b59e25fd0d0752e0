p.policytype = 'p' AND CASE c.relkind
            WHEN 'r' THEN NOT EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = c.oid)
            WHEN 'p' THEN NOT EXISTS (SELECT 1 FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
                WHERE l.relkind NOT IN ('r', 'p'))
        END
