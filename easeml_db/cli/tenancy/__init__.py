"""Commands for tenants and the policy that serves them."""
