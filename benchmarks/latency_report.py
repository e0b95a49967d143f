def report(*a): return "x"
