package main

import (
	"fmt"
	"os"
	"time"
)

// progress prints each step. On a terminal, each step replaces the line of the last one.
type progress struct {
	begin       time.Time
	done, total int
}

func (p *progress) show(what string) {
	p.done++
	p.say(fmt.Sprintf("%d of %d  %s", p.done, p.total, what))
}

func (p *progress) say(what string) {
	line := fmt.Sprintf("%5s  %s", time.Since(p.begin).Truncate(time.Second), what)
	if onTerminal() {
		fmt.Fprint(os.Stderr, "\r\x1b[K", line)
	} else {
		fmt.Fprintln(os.Stderr, line)
	}
}

func (p *progress) end() {
	if onTerminal() {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

func onTerminal() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
