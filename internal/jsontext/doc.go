// Package jsontext reads and writes the plain part of JSON without reflection, for what comes by the million: jobs.
// What it gives up on is left to encoding/json, so it never has to say what is wrong with a text, nor know every way
// to write one.
package jsontext
