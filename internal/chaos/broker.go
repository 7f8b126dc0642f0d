package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

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

// rest calls the admin API. A name of a topic is made the path that it has there.
func (b *broker) rest(ctx context.Context, method, path string, body, answer any) error {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(data)
	}
	path = strings.Replace(path, "://", "/", 1)
	req, err := http.NewRequestWithContext(ctx, method, b.admin+"/admin/v2/"+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if answer != nil {
		return json.Unmarshal(text, answer)
	}
	return nil
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
