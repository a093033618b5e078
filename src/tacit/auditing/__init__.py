"""What leaks: proved (symbolic), bounded (bounds) and measured (attacks, canaries, scoring).

`tacit.audit` runs an audit. `run_audit` in `audit` does the work for one `Setting`.
"""
