"""The commands of tilec, one a file; what they share is in options.py (IR options) and programs.py (source files, functions, choices).

Nothing here imports NumPy, LLVM or a parser before a command runs: `tilec --help` answers at once."""
