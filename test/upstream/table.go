package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// exceptions are the tests that do not pass wrapped, by decision; docs/migration.md explains each.
var exceptions = map[string]string{
	"TestZeroQueueConsumer_Chan": "`Chan` of a zero-queue consumer panics upstream, and works here",
	"TestPriorityConsumer":       "counts on the ten messages that upstream prefetches beyond ReceiverQueueSize",
}

// notInProcess are the tests that need what the broker in process does not have.
var notInProcess = map[string]string{}

// report writes the table and returns the tests that pass plain and not wrapped, and are no exception.
func report(w io.Writer, version string, tests []test, brokers []broker, results map[key]result, took time.Duration) (broken []string) {
	fmt.Fprintf(w, "pulsar-client-go %s, %s\n\n| test |", version, took.Round(time.Second))
	for _, b := range brokers {
		fmt.Fprintf(w, " plain, %s | wrapped, %s |", b.name, b.name)
	}
	fmt.Fprintf(w, " why not |\n|---|%s---|\n", strings.Repeat("---|", 2*len(brokers)))
	plain, wrapped, left := make([]int, len(brokers)), make([]int, len(brokers)), 0
	for _, t := range tests {
		fmt.Fprintf(w, "| %s |", t.name)
		notes := []string{}
		if t.leftOut != "" {
			left++
			notes = append(notes, "left out: "+t.leftOut)
		}
		for i, b := range brokers {
			p, q := results[key{t.name, b.name, false}], results[key{t.name, b.name, true}]
			fmt.Fprintf(w, " %s | %s |", p, q)
			if b.url == "" && t.leftOut == "" && notInProcess[t.name] != "" {
				notes = append(notes, "not on "+b.name+": "+notInProcess[t.name])
				continue
			}
			stable := p.ok() || p.runs == 0 && q.ok() || t.keyShared && (p.passed > 0 || p.runs == 0 && q.passed > 0)
			if stable {
				plain[i]++
			}
			switch {
			case stable && (2*q.passed > q.runs || t.keyShared && q.passed > 0):
				wrapped[i]++
				if !q.ok() && !t.keyShared {
					notes = append(notes, b.name+", wrapped, sometimes: "+q.failure)
				}
			case stable && exceptions[t.name] != "":
				notes = append(notes, "exception: "+exceptions[t.name])
			case stable:
				broken = append(broken, t.name)
				notes = append(notes, b.name+", wrapped: "+q.failure)
			case p.runs > 0:
				notes = append(notes, b.name+", plain: "+p.failure)
			}
		}
		fmt.Fprintf(w, " %s |\n", strings.Join(notes, "; "))
	}
	fmt.Fprintf(w, "\n%d tests subscribe, %d of them are left out.\n", len(tests), left)
	for i, b := range brokers {
		fmt.Fprintf(w, "On %s %d pass plain every time, and %d of these wrapped.\n", b.name, plain[i], wrapped[i])
	}
	return broken
}
