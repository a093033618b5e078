"""Own data: tables and arrays of clients, from files, functions and objects in memory."""
