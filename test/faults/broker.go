package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// broker has the addresses of a broker and of its admin API.
type broker struct {
	url, admin string
	inProcess  *pulsartest.Server // nil if the broker is a real one
	members    []*member          // the brokers of a cluster; nil if there is one broker
}

// startInProcess starts a broker in this process.
func startInProcess() (*broker, func(), error) {
	server, err := pulsartest.Start(pulsartest.WithBatchIndexAcknowledgment()) // like the broker of test/scripts/pulsar
	if err != nil {
		return nil, nil, err
	}
	return &broker{url: server.URL(), admin: server.AdminURL(), inProcess: server}, server.Close, nil
}

// openBroker returns the broker of a run.
func openBroker(ctx context.Context, on string) (*broker, func(), error) {
	switch on {
	case "pulsartest":
		return startInProcess()
	case "env":
		b := &broker{url: os.Getenv("PULSAR_URL"), admin: os.Getenv("PULSAR_ADMIN_URL")}
		if b.url == "" || b.admin == "" {
			return nil, nil, errors.New("-on env wants PULSAR_URL and PULSAR_ADMIN_URL in the environment")
		}
		return b, func() {}, nil
	case "own":
		b, err := startBroker(ctx, nil, "start", "-keep")
		return b, func() {}, err
	default:
		return nil, nil, fmt.Errorf("-on is %q, want own, env or pulsartest", on)
	}
}

// has reports whether the broker of -on is of the kind that a fault needs.
func has(on string, needs brokerKind) bool {
	switch needs { //nolint:exhaustive // the other kinds work with each -on
	case killable, guarded, clustered:
		return on == "own"
	}
	return true
}

// startBroker starts a broker with test/scripts/pulsar, unless it is already running.
func startBroker(ctx context.Context, env []string, args ...string) (*broker, error) {
	out, err := scriptWith(ctx, env, args...)
	if err != nil {
		return nil, err
	}
	b := &broker{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if url, ok := strings.CutPrefix(line, "export PULSAR_URL="); ok {
			b.url = url
		}
		if url, ok := strings.CutPrefix(line, "export PULSAR_ADMIN_URL="); ok {
			b.admin = url
		}
	}
	if b.url == "" || b.admin == "" {
		return nil, fmt.Errorf("test/scripts/pulsar start printed %q, want PULSAR_URL and PULSAR_ADMIN_URL", out)
	}
	return b, nil
}

func script(ctx context.Context, args ...string) (string, error) {
	return scriptWith(ctx, nil, args...)
}

func scriptWith(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "test/scripts/pulsar", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Env = append(os.Environ(), env...)
	if _, err := os.Stat("test/scripts/pulsar"); err != nil {
		return "", fmt.Errorf("%w: run faults in the project's folder", err)
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("test/scripts/pulsar %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}

// callAdmin calls the admin API.
func (b *broker) callAdmin(ctx context.Context, method, path string, body, answer any) error {
	return admin.Call(ctx, b.admin, method, path, body, answer)
}

// patiently calls do until it succeeds, at most 20 times. A broker that was killed and started again refuses some calls
// for a while.
func patiently(ctx context.Context, do func() error) (err error) {
	for range 20 {
		if err = do(); err == nil || ctx.Err() != nil {
			return err
		}
		sleep(ctx, time.Second)
	}
	return err
}

// state has the broker's statistics of a topic's subscriptions.
type state struct {
	backlog int // entries that are not acknowledged
	unacked int // messages that were sent to consumers and are not acknowledged
	permits int // permits that the broker got from consumers and has not used
	out     int // messages sent until now

	consumers int
}

func (s state) String() string {
	return fmt.Sprintf("a backlog of %d, %d sent and unacknowledged, %d sent in all, %d permits of %d consumers",
		s.backlog, s.unacked, s.out, s.permits, s.consumers)
}

// isStuck reports whether the broker has messages and should send them: it has permits, or it has no consumer although
// a client seems to be subscribed. Both sometimes happen, with any client.
func (s state) isStuck() bool {
	return s.backlog > 0 && s.unacked <= 0 && (s.permits > 0 || s.consumers == 0)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// state asks the broker for the sum over a topic's subscriptions. ok is false if the call fails or there are no
// subscriptions.
func (b *broker) state(ctx context.Context, topic string) (sum state, ok bool) {
	var stats struct {
		Subscriptions map[string]struct {
			Backlog   int `json:"msgBacklog"`
			Unacked   int `json:"unackedMessages"`
			Out       int `json:"msgOutCounter"`
			Consumers []struct {
				Permits int `json:"availablePermits"`
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := b.callAdmin(ctx, "GET", topic+"/stats", nil, &stats); err != nil || len(stats.Subscriptions) == 0 {
		return sum, false
	}
	for _, s := range stats.Subscriptions {
		sum.backlog += s.Backlog
		sum.unacked += s.Unacked
		sum.out += s.Out
		sum.consumers += len(s.Consumers)
		for _, c := range s.Consumers {
			sum.permits += c.Permits
		}
	}
	return sum, true
}

var (
	quiet  = slog.New(slog.NewTextHandler(io.Discard, nil))
	silent = plog.NewLoggerWithSlog(quiet)
)

func newClient(w work) (pulsar.Client, error) {
	opts := pulsar.ClientOptions{URL: w.URL, KeepAliveInterval: keepAlive, OperationTimeout: 3 * time.Second,
		Logger: silent}
	if w.Token != "" {
		opts.Authentication = pulsar.NewAuthenticationToken(w.Token)
	}
	return pulsar.NewClient(opts)
}
