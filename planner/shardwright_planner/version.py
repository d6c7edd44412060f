"""The version of the planner's rules: it moves when the same request may give another plan."""

PLANNER_VERSION = "1"
