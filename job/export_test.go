package job

// PlainSpec reads a job without reflection.
var PlainSpec = plainSpec
