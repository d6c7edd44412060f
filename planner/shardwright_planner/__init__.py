"""The embedded planner: model facts, hardware and a service level in; an explained plan out."""
