"""`kubectl treadle`: look at runs, live and afterwards."""
