"""Commands for cost and time: plans, forecasts, prices."""
