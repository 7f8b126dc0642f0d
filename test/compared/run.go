package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"log/slog"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/history"
	"github.com/pulsar-redelivery/redelivery/test/internal/proxy"
)

// cell is a cell of the tables in docs/compared.md: a client, a workload, a fault.
type cell struct{ client, workload, fault string }

func (c cell) String() string { return c.client + "/" + c.workload + "/" + c.fault }

type broker struct{ url, admin string }

// messages is how many messages are published in each run.
const messages = 200

// patience is how long after the last fault a run waits until all messages are acknowledged.
const patience = 60 * time.Second

// trial is a run of a cell.
type trial struct {
	broker
	cell
	program  []string
	proxy    *proxy.Proxy
	topic    string
	dir      string
	to       *history.Writer
	consumer *process
	started  int
}

// process is a running consumer.
type process struct {
	*exec.Cmd
	name string
	in   io.Closer
}

func (b broker) run(ctx context.Context, c cell, program []string) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	t := &trial{broker: b, cell: c, program: program,
		dir:   filepath.Join("out", strings.ReplaceAll(c.String(), "/", "-")),
		topic: fmt.Sprintf("persistent://public/default/compared-%08x", rand.Uint32())}
	if err := errors.Join(os.RemoveAll(t.dir), os.MkdirAll(t.dir, 0o700)); err != nil {
		return r, err
	}
	if t.to, err = history.Create(t.dir, "runner"); err != nil {
		return r, err
	}
	if t.proxy, err = proxy.New(b.url, b.admin); err != nil {
		return r, err
	}
	defer t.proxy.Close()
	if err := t.start(ctx); err != nil {
		return r, err
	}
	defer t.stop()
	if err := t.publish(ctx); err != nil {
		return r, err
	}
	if err := t.causeFault(ctx); err != nil {
		return r, err
	}
	drained := t.drain(ctx)
	t.stop()
	if drained {
		t.to.Write(history.Event{Kind: history.Drained})
	}
	return measure(t.dir, t.workload)
}

// start starts a consumer and waits until it is subscribed.
func (t *trial) start(ctx context.Context) error {
	t.started++
	name := fmt.Sprint("consumer-", t.started)
	dir, err := filepath.Abs(t.dir)
	if err != nil {
		return err
	}
	text, err := json.Marshal(job{t.proxy.URL, t.topic, t.workload, strings.HasSuffix(t.client, "+"), name,
		filepath.Join(dir, name+".jsonl")})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, t.program[0], t.program[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.consumer = &process{cmd, name, in}
	if _, err := in.Write(append(text, '\n')); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			return nil
		}
	}
	return errors.New("the consumer ended before it was subscribed")
}

// stop ends the consumer normally. After five seconds, stop kills the process.
func (t *trial) stop() {
	if t.consumer == nil {
		return
	}
	t.consumer.in.Close()
	force := time.AfterFunc(5*time.Second, func() { _ = t.consumer.Process.Kill() })
	_ = t.consumer.Wait()
	force.Stop()
	t.consumer = nil
}

func (t *trial) publish(ctx context.Context) error {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: t.url,
		Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
	if err != nil {
		return err
	}
	defer client.Close()
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: t.topic, DisableBatching: t.workload != batch,
		BatchingMaxMessages:     10,
		BatchingMaxPublishDelay: time.Second})
	if err != nil {
		return err
	}
	defer p.Close()
	failed := make(chan error, messages)
	for n := range messages {
		t.to.Write(history.Event{Kind: history.Published, Message: fmt.Sprint(n)})
		p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: fmt.Append(nil, n)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { failed <- err })
	}
	if err := p.FlushWithCtx(ctx); err != nil {
		return err
	}
	for range messages {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// causeFault causes the fault three times while messages wait for their delays.
func (t *trial) causeFault(ctx context.Context) error {
	every := 1500 * time.Millisecond
	if t.workload == timeout {
		every = 4 * time.Second
	}
	for range 3 {
		if !sleep(ctx, every) {
			return ctx.Err()
		}
		lost := history.Event{Kind: history.Disconnected, Note: t.fault}
		switch t.fault {
		case "unload":
			t.to.Write(lost)
			if err := admin.Call(ctx, t.admin, "PUT", t.topic+"/unload", nil, nil); err != nil {
				return err
			}
		case "cut":
			t.to.Write(lost)
			t.proxy.Cut()
		case "kill":
			t.to.Write(history.Event{Kind: history.Killed, Consumer: t.consumer.name})
			if err := t.consumer.Process.Kill(); err != nil {
				return err
			}
			_ = t.consumer.Wait()
			if err := t.start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain waits until the broker has had no unacknowledged message for two seconds. It reports false if that takes longer
// than patience.
func (t *trial) drain(ctx context.Context) bool {
	topics := []string{t.topic}
	if t.workload == retry {
		topics = append(topics, t.topic+"-"+subscription+pulsar.RetryTopicSuffix)
	}
	var empty time.Time
	for end := time.Now().Add(patience); time.Now().Before(end); {
		backlog := 0
		for _, topic := range topics {
			var stats struct {
				Subscriptions map[string]struct {
					Backlog int `json:"msgBacklog"`
				}
			}
			if err := admin.Call(ctx, t.admin, "GET", topic+"/stats", nil, &stats); err != nil {
				backlog++
			}
			backlog += stats.Subscriptions[subscription].Backlog
		}
		switch {
		case backlog > 0:
			empty = time.Time{}
		case empty.IsZero():
			empty = time.Now()
		case time.Since(empty) > 2*time.Second:
			return true
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return false
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// prepare returns the command line of each client's consumer.
func prepare(ctx context.Context) (map[string][]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	lib, err := filepath.Abs(".cache/java")
	if err != nil {
		return nil, err
	}
	python := ".cache/python/bin/python"
	for _, args := range [][]string{
		{"mvn", "-q", "-B", "-f", "java/pom.xml", "compile",
			"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
			"-DoutputDirectory=" + filepath.Join(lib, "lib")},
		{"python3", "-m", "venv", ".cache/python"},
		{python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", "python/requirements.txt"},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	return map[string][]string{"go": {self, "-consume", "go"}, "redelivery": {self, "-consume", "redelivery"},
		"java": {"java", "-Xmx256m", "-cp", filepath.Join(lib, "classes") + string(os.PathListSeparator) +
			filepath.Join(lib, "lib", "*"), "Worker"},
		"python": {python, "python/worker.py"}}, nil
}
