"""The Model Context Protocol: tools for programs that use models."""
