"""What leaks: proved (knowledge), bounded (ledger) and measured (attacks, scoring)."""
