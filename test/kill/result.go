package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

// result is what became of the messages of a run.
type result struct {
	faults  []time.Time // kills, or moves and deaths of brokers
	handled int         // deliveries
	excess  int         // messages that were handled more often than they may be
	most    int         // deliveries of one message
	dead    int
	took    string

	// Deliveries that the next one's count does not have:
	cut       int           // the process was killed in the handler
	forgotten int           // it was killed when the handler had returned, and before the failure was in the log
	twice     int           // another consumer had the message at the same time
	lost      time.Duration // how long before a fault a failure was, at most, that was forgotten

	early      int // deliveries of messages that were not due
	counted    int // of these, whose last failure was not forgotten
	unexpected int // messages that were handled more often than they may be and all of the above says
}

// delivery is what a process noted of one.
type delivery struct {
	at, failed time.Time // failed is zero if the handler did not return
	count      int
	process    int
}

// deliveries reads what the processes noted, by message and in order.
func deliveries(file string) map[string][]delivery {
	f, err := os.Open(file)
	check(err)
	defer f.Close()
	all := map[string][]delivery{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var what, name string
		var micros int64
		var d delivery
		if n, _ := fmt.Sscan(lines.Text(), &what, &name, &micros, &d.count, &d.process); n < 5 {
			continue // the process was killed while it wrote
		}
		at := time.UnixMicro(micros)
		if what == "h" {
			d.at = at
			all[name] = append(all[name], d)
			continue
		}
		for i := range all[name] {
			if x := &all[name][i]; x.process == d.process && x.count == d.count && x.failed.IsZero() {
				x.failed = at
			}
		}
	}
	return all
}

// read counts what the processes noted.
func (r *result) read(file string) {
	for _, all := range deliveries(file) {
		r.handled += len(all)
		r.most = max(r.most, len(all))
		uncounted := 0
		for i, d := range all[1:] {
			last := all[i]
			early := !last.failed.IsZero() && d.at.After(last.failed) && d.at.Before(last.failed.Add(delay))
			if early {
				r.early++
			}
			if d.count > last.count {
				if early {
					r.counted++
				}
				continue
			}
			uncounted++
			switch {
			case last.failed.IsZero():
				r.cut++
			case last.failed.After(d.at):
				r.twice++
			default:
				r.forgotten++
				r.lost = max(r.lost, r.beforeFault(last.failed))
			}
		}
		if len(all) > maxDeliveries {
			r.excess++
		}
		if len(all) > maxDeliveries+uncounted {
			r.unexpected++
		}
	}
}

// beforeFault returns how long it was from a failure to the next fault.
func (r *result) beforeFault(at time.Time) time.Duration {
	for _, k := range r.faults {
		if d := k.Sub(at); d > -50*time.Millisecond {
			return max(0, d)
		}
	}
	return 0
}

const columns = `| subscription | batched | client | faults | handled | cut off by a kill | forgotten | at most before a fault | with two at once | messages handled more than 4 times | handled at most | early | early though counted | not explained | dead letters | after |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|`

func (r *result) row(kind string, batched bool, client string) string {
	return fmt.Sprintf("| %s | %t | %s | %d | %d | %d | %d | %v | %d | %d | %d | %d | %d | %d | %d | %s |", kind, batched, client, len(r.faults), r.handled, r.cut,
		r.forgotten, r.lost.Round(time.Millisecond), r.twice, r.excess, r.most, r.early, r.counted, r.unexpected, r.dead, r.took)
}

// isGood reports whether the log kept what it promises.
func (r *result) isGood() bool { return r.dead == *messages && r.counted == 0 && r.unexpected == 0 }
