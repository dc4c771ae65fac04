// Package schedule turns a schedule expression (cron, @every, RRULE, an instant or @manual) and a time zone into fire
// times, by calendar arithmetic alone.
//
// It reads no clock and keeps no state between calls: the same expression, options and argument always give the same
// answer, on every node. DESIGN.md explains how it works and which rules it follows.
package schedule
