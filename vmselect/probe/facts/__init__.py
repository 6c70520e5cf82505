"""What can be known about the machine, the software and the process; nothing here imports a framework."""
