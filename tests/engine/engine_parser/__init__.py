"""vLLM's own parser and configuration as a service: a command line in, what the engine makes of it out."""

from engine_parser.service import Answer, ParserError, ParserService

__all__ = ["Answer", "ParserError", "ParserService"]
