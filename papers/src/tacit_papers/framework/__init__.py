"""What papers and findings are made of: artifacts, cells, claims, results and figures."""
