// Package checker decides whether what was seen of a cluster can have happened by the rules of the design: nothing
// lost, nothing invented, nothing twice without an excuse, and every occurrence accounted for exactly once. It does no
// I/O, reads no clock and shares no code with what it judges: occurrences are counted by a slow oracle of its own.
package checker
