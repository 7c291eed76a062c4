"""Workers that the program starts as scripts, with the peers they run. So they import each other by plain names."""
