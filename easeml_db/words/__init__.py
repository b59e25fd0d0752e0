"""The domain's nouns as frozen values: a run and its arms, a trial, a training unit, a tenant, slots."""
