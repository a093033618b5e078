"""Protections: noise laws, and what they are worth."""
