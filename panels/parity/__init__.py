"""The tab "Parity": one model on several runtimes, stage by stage."""
