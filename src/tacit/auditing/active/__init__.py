"""Active adversaries: clients that deviate from the protocol in what they send."""
