package logtest

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"testing"

	plog "github.com/apache/pulsar-client-go/pulsar/log"
)

// Logger returns a logger of warnings and errors that writes to the output of t, which go test prints if t fails. It
// drops lines that are logged after t has ended.
func Logger(t testing.TB) *slog.Logger {
	out := &output{to: t.Output()}
	t.Cleanup(out.end)
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Client returns Logger(t) as a logger of pulsar-client-go.
func Client(t testing.TB) plog.Logger { return plog.NewLoggerWithSlog(Logger(t)) }

// output is the output of a test until the test ends. Afterwards, a write to t.Output would panic.
type output struct {
	mu sync.Mutex
	to io.Writer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(p)
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = io.Discard
}

// Quiet runs the tests of a package, for TestMain. If a test fails, Quiet prints the last 20 warnings and errors of the
// default logger, which belong to no particular test. Otherwise it prints none.
type Quiet struct{ *testing.M }

// Run runs the tests and returns the exit code.
func (q Quiet) Run() int {
	last := &tail{}
	slog.SetDefault(slog.New(slog.NewTextHandler(last, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.SetOutput(os.Stderr) // SetDefault redirects package log, but log.Fatal of an example must be seen
	code := q.M.Run()
	if code != 0 {
		last.print()
	}
	return code
}

// tail keeps the last lines of a log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 20 {
		l.lines = l.lines[1:]
	}
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *tail) print() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) > 0 {
		fmt.Fprintln(os.Stderr, "The last warnings of the default logger:")
	}
	for _, line := range l.lines {
		fmt.Fprint(os.Stderr, line)
	}
}
