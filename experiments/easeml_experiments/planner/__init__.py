"""RubberBand's tables and figures again, and the planner on random jobs."""
