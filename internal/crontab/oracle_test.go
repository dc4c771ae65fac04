package crontab

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// This is cron's own loop (cron.c of cronie, from Vixie's cron 4), minute by minute, with the bit strings and flags of
// entry.c. It shares nothing with the package.

type oracleEntry struct {
	minute, hour, dom, month, dow       [64]bool
	minStar, hourStar, domStar, dowStar bool
}

func oracleList(text string, low, high int, names []string, bits *[64]bool) {
	number := func(s string) int {
		if i := slices.Index(names, strings.ToLower(s)); i >= 0 {
			return i + low
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(text)
		}
		return n
	}
	for _, item := range strings.Split(text, ",") {
		step := 1
		if i := strings.IndexByte(item, '/'); i >= 0 {
			step, item = number(item[i+1:]), item[:i]
		}
		from, to := low, high
		if item != "*" {
			if i := strings.IndexByte(item, '-'); i >= 0 {
				from, to = number(item[:i]), number(item[i+1:])
				if from > to && to == 0 {
					to = 7
				}
			} else {
				from = number(item)
				to = from
			}
		}
		for v := from; v <= to; v += step {
			bits[v] = true
		}
	}
}

func oracleParse(line string) (e oracleEntry) {
	switch line {
	case "@hourly":
		e = oracleParse("0 0-23 * * *")
		e.hourStar = true
		return e
	case "@daily", "@midnight":
		line = "0 0 * * *"
	case "@weekly":
		line = "0 0 * * 0"
	case "@monthly":
		line = "0 0 1 * *"
	case "@yearly", "@annually":
		line = "0 0 1 1 *"
	}
	f := strings.Fields(line)
	oracleList(f[0], 0, 59, nil, &e.minute)
	oracleList(f[1], 0, 23, nil, &e.hour)
	oracleList(f[2], 1, 31, nil, &e.dom)
	oracleList(f[3], 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec"), &e.month)
	oracleList(f[4], 0, 7, strings.Fields("sun mon tue wed thu fri sat"), &e.dow)
	if e.dow[0] || e.dow[7] {
		e.dow[0], e.dow[7] = true, true
	}
	e.minStar, e.hourStar, e.domStar, e.dowStar = f[0][0] == '*', f[1][0] == '*', f[2][0] == '*', f[4][0] == '*'
	return e
}

// due is find_jobs, for a minute of the wall clock since 1970.
func (e *oracleEntry) due(wall int64, doWild, doNonWild bool) bool {
	if !e.minute[wall%60] || !e.hour[wall/60%24] {
		return false
	}
	t := time.Unix(wall*60, 0).UTC()
	if !e.month[t.Month()] {
		return false
	}
	dom, dow := e.dom[t.Day()], e.dow[t.Weekday()]
	if e.domStar || e.dowStar {
		if !dom || !dow {
			return false
		}
	} else if !dom && !dow {
		return false
	}
	wild := e.minStar || e.hourStar
	return doNonWild && !wild || doWild && wild
}

// wallMinutes are what a wall clock shows in every minute from the one before from on.
func wallMinutes(loc *time.Location, from, until time.Time) (minutes []int64) {
	for unix := from.Unix() - 60; unix < until.Unix(); unix += 60 {
		_, offset := time.Unix(unix, 0).In(loc).Zone()
		minutes = append(minutes, (unix+int64(offset))/60)
	}
	return minutes
}

// cronRuns are the minutes in which cron runs a line. What it makes up for in one minute is one run here.
func cronRuns(line string, minutes []int64, from time.Time) (runs []int64) {
	e := oracleParse(line)
	virtual := minutes[0]
	for i, running := range minutes[1:] {
		unix := from.Unix() + int64(i)*60
		run := false
		switch diff := running - virtual; {
		case diff == 1:
			virtual = running
			run = e.due(virtual, true, true)
		case diff > 180 || diff < -180:
			virtual = running
			run = e.due(running, true, true)
		case diff > 5:
			run = e.due(running, true, false)
			for virtual < running {
				virtual++
				run = e.due(virtual, false, true) || run
			}
		case diff > 0:
			for virtual < running {
				virtual++
				run = e.due(virtual, true, true) || run
			}
		default:
			run = e.due(running, true, false)
		}
		if run {
			runs = append(runs, unix)
		}
	}
	return runs
}
