"""Fleet: typed tasks from Python, given to whatever workers there are and waited for."""
