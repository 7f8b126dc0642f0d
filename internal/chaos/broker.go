package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// broker is a broker and its admin API.
type broker struct {
	url, admin string
	inProcess  *pulsartest.Server // nil if it is that of scripts/pulsar
}

// startBroker starts the broker of scripts/pulsar unless it runs.
func startBroker(ctx context.Context) (*broker, error) {
	out, err := script(ctx, "start", "-keep")
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
		return nil, fmt.Errorf("scripts/pulsar start printed %q, want PULSAR_URL and PULSAR_ADMIN_URL", out)
	}
	return b, nil
}

func script(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "scripts/pulsar", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if _, err := os.Stat("scripts/pulsar"); err != nil {
		return "", fmt.Errorf("%w: run this in the project's folder", err)
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/pulsar %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}

// rest calls the admin API.
func (b *broker) rest(ctx context.Context, method, path string, body, answer any) error {
	return admin.Call(ctx, b.admin, method, path, body, answer)
}

// backlog returns how many messages of a topic are not acknowledged; -1 if there is no subscription to ask about.
func (b *broker) backlog(ctx context.Context, topic string) int {
	var stats struct {
		Subscriptions map[string]struct {
			Backlog int `json:"msgBacklog"`
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := b.rest(ctx, "GET", topic+"/stats", nil, &stats); err != nil || len(stats.Subscriptions) == 0 {
		return -1
	}
	sum := 0
	for _, s := range stats.Subscriptions {
		sum += s.Backlog
	}
	return sum
}
