package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// broker is the broker for tests: one that is running, or a new one in process for each test.
type broker struct {
	name         string
	url, adminAt string // host and port; "" in process
}

const inProcess, real = "pulsartest", "pulsar"

func brokersFor(on string) ([]broker, error) {
	if on != "" && on != inProcess && on != real {
		return nil, fmt.Errorf("-on %s, want %s or %s", on, inProcess, real)
	}
	var brokers []broker
	if on != real {
		brokers = append(brokers, broker{name: inProcess})
	}
	at, admin := os.Getenv("PULSAR_URL"), os.Getenv("PULSAR_ADMIN_URL")
	if on == real && (at == "" || admin == "") {
		return nil, errors.New("-on pulsar needs PULSAR_URL and PULSAR_ADMIN_URL")
	}
	if on != inProcess && at != "" && admin != "" {
		atURL, err := url.Parse(at)
		if err != nil {
			return nil, err
		}
		adminURL, err := url.Parse(admin)
		if err != nil {
			return nil, err
		}
		brokers = append(brokers, broker{real, atURL.Host, adminURL.Host})
	}
	return brokers, nil
}

// maxMessageSize is the limit of upstream's own test broker, which the tests of chunks need.
const maxMessageSize = 1 << 20

// start returns the addresses of a broker for one test.
func (b broker) start() (url, admin string, stop func(), err error) {
	if b.url != "" {
		return b.url, b.adminAt, func() {}, nil
	}
	s, err := pulsartest.Start(pulsartest.WithMaxMessageSize(maxMessageSize), pulsartest.WithBatchIndexAcknowledgment(),
		pulsartest.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		return "", "", nil, err
	}
	return strings.TrimPrefix(s.URL(), "pulsar://"), strings.TrimPrefix(s.AdminURL(), "http://"), s.Close, nil
}

// result has the outcomes of a test on a broker, plain or wrapped.
type result struct {
	passed, runs int
	failure      string // of the last run that failed
}

func (r result) ok() bool { return r.passed > 0 && r.passed == r.runs }

func (r result) String() string {
	switch {
	case r.runs == 0:
		return ""
	case r.ok():
		return "pass"
	case r.runs == 1:
		return "fail"
	}
	return fmt.Sprintf("%d of %d", r.passed, r.runs)
}

type key struct {
	test, broker string
	wrapped      bool
}

type runner struct {
	binary, dir, logs string
	quick             bool

	mu      sync.Mutex
	results map[key]result
	serial  int
}

func (r *runner) runAll(ctx context.Context, tests []test, brokers []broker, parallel int) map[key]result {
	r.results = map[key]result{}
	slots := make(chan struct{}, max(1, parallel))
	var all sync.WaitGroup
	for _, b := range brokers {
		for _, t := range tests {
			if t.leftOut != "" || ctx.Err() != nil || b.url == "" && notInProcess[t.name] != "" ||
				r.quick && exceptions[t.name] != "" {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				r.compare(ctx, t, b)
			})
		}
	}
	all.Wait()
	return r.results
}

const (
	again = 3 // how often a test runs plain and wrapped if its first runs had different outcomes
	// limit of the runs of a Key_Shared test: about half of its runs pass, so it hardly ever fails in all of them by
	// chance
	draws = 40
)

// compare runs a test plain and wrapped. If only one run passes, it repeats both. It repeats a Key_Shared test, plain
// and wrapped, until the test passes, since the keys that a consumer gets depend on its random name.
func (r *runner) compare(ctx context.Context, t test, b broker) {
	began := time.Now()
	wrapped, plain := r.run(ctx, t, b, true, result{}), result{}
	if !r.quick || !wrapped.ok() {
		plain = r.run(ctx, t, b, false, plain)
	}
	for t.keyShared && wrapped.passed == 0 && wrapped.runs < draws {
		wrapped = r.run(ctx, t, b, true, wrapped)
	}
	for t.keyShared && plain.runs > 0 && plain.passed == 0 && plain.runs < draws {
		plain = r.run(ctx, t, b, false, plain)
	}
	if !t.keyShared && plain.runs > 0 && plain.ok() != wrapped.ok() {
		for plain.runs < again {
			plain, wrapped = r.run(ctx, t, b, false, plain), r.run(ctx, t, b, true, wrapped)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[key{t.name, b.name, true}] = wrapped
	r.results[key{t.name, b.name, false}] = plain
	fmt.Fprintf(os.Stderr, "%-10s plain %-7s wrapped %-7s %4.0f s  %s %s\n", b.name, plain, wrapped,
		time.Since(began).Seconds(),
		t.name, cmp.Or(wrapped.failure, plain.failure))
}

const timeout = 2 * time.Minute

// run runs a test once more, and returns sum with the outcome added.
func (r *runner) run(ctx context.Context, t test, b broker, wrapped bool, sum result) result {
	sum.runs++
	url, admin, stop, err := b.start()
	if err != nil {
		sum.failure = err.Error()
		return sum
	}
	defer stop()
	r.mu.Lock()
	r.serial++
	suffix := fmt.Sprintf("-%x-%d", time.Now().UnixMilli(), r.serial)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, "-test.run", "^"+t.name+"$", "-test.v", "-test.timeout", timeout.String())
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "UPSTREAM_BROKER="+url, "UPSTREAM_ADMIN="+admin, "UPSTREAM_SUFFIX="+suffix)
	how := "plain"
	if wrapped {
		how = "wrapped"
		cmd.Env = append(cmd.Env, "UPSTREAM_WRAPPED=1")
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		sum.failure = why(out, err)
		log := filepath.Join(r.logs, fmt.Sprintf("%s-%s-%s.log", t.name, b.name, how))
		if err := os.WriteFile(log, out, 0o644); err != nil {
			sum.failure += "; " + err.Error()
		}
	case bytes.Contains(out, []byte("--- SKIP: "+t.name+" ")):
		sum.failure = "skips itself"
	default:
		sum.passed++
	}
	return sum
}

var (
	assertion = regexp.MustCompile(`Error Trace:\s+(?:\S*/)?(\S+:\d+)`)
	timedOut  = regexp.MustCompile(`panic: test timed out`)
	panicked  = regexp.MustCompile(`(?m)^panic: .*$`)
	logged    = regexp.MustCompile(`(?m)^    (\S+_test.go:\d+: .+)$`)
)

// why returns the line of a failed test's output that best shows why it failed.
func why(out []byte, err error) string {
	switch {
	case timedOut.Match(out):
		return "timed out"
	case assertion.Match(out):
		return string(assertion.FindSubmatch(out)[1])
	case logged.Match(out):
		return string(logged.FindSubmatch(out)[1])
	case panicked.Match(out):
		return string(panicked.Find(out))
	}
	return err.Error()
}
