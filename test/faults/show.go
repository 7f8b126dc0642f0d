package main

import (
	"fmt"
	"os"
	"runtime/pprof"
)

// stats returns the Stats of this process's Consumer, and the name of a file with the stacks of all goroutines.
func (t *trial) stats() string {
	if t.local == nil {
		return "the Consumers are in other processes"
	}
	text := fmt.Sprintf("%+v", t.local.Stats())
	file, err := os.CreateTemp("", "chaos-goroutines-*.txt")
	if err != nil {
		return text
	}
	defer file.Close()
	_ = pprof.Lookup("goroutine").WriteTo(file, 1)
	return text + ", goroutines in " + file.Name()
}

var terminal = func() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}()

// show overwrites the line that shows the progress on a terminal.
func (t *trial) show(format string, args ...any) {
	if terminal {
		fmt.Fprintf(os.Stderr, "\r\033[K%s on %s: %s\r", t.name(), typeNames[t.work.Type], fmt.Sprintf(format, args...))
	}
}
