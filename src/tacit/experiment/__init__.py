"""Experiments: from a configuration to a run folder; grids, audits of folders, exports."""
