package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

const killed = "REDELIVERY_TEST_KILLED"

// TestKilledWhilePublishing kills processes at random moments while their messages become retries or dead letters: none
// is lost, and one that was published but not acknowledged comes again, and is published by another process a second
// time.
func TestKilledWhilePublishing(t *testing.T) {
	if how := os.Getenv(killed); how != "" {
		toBeKilled(t, strings.Fields(how))
		return
	}
	t.Parallel()
	for _, how := range []string{"reconsume", "dead", "move"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			const n = 300 // messages for each
			kills := 3
			if *long || os.Getenv("PULSAR_URL") != "" {
				kills = 10
			}
			topic := b.topic(0)
			keeper := b.subscribe(b.options(topic, pulsar.Shared))
			keeper.Close() // the subscription is there
			published := map[string]string{"reconsume": retryTopic(topic), "dead": deadLetterTopic(topic), "move": retryTopic(topic)}[how]
			out := b.reader(published)
			want := map[string]bool{}
			for run := range kills {
				var msgs []*pulsar.ProducerMessage
				for i := range n {
					payload := fmt.Sprintf("%d-%d", run, i)
					want[payload] = true
					msgs = append(msgs, &pulsar.ProducerMessage{Payload: []byte(payload), Key: fmt.Sprint(i % 10)})
				}
				b.publish(pulsar.ProducerOptions{Topic: topic}, msgs...)
				child, _ := startProcess(t, "TestKilledWhilePublishing", fmt.Sprintf("%s=%s %s %s %d", killed, how, b.url, topic, run))
				time.Sleep(rand.N(60 * time.Millisecond))
				kill(t, child)
			}
			last := publishes(t, b.client, how, topic, "last")
			defer last.Close()
			require.Eventually(t, func() bool { return b.stats(topic, 0).Backlog == 0 }, 2*time.Minute, ms(50))
			seen, doubles := map[string]map[string]bool{}, 0
			for {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				msg, err := out.Receive(ctx)
				if cancel(); err != nil {
					break
				}
				payload, by := string(msg.Payload()), msg.ProducerName()
				if how == "reconsume" {
					by = msg.Properties()["by"]
				}
				if seen[payload] == nil {
					seen[payload] = map[string]bool{}
				} else {
					doubles++
				}
				require.False(t, seen[payload][by], "%s twice by process %s", payload, by)
				seen[payload][by] = true
			}
			for payload := range want {
				require.NotEmpty(t, seen[payload], "%s is lost", payload)
			}
			t.Logf("%s: %d kills, %d messages, 0 lost, %d published by two processes", how, kills, len(want), doubles)
		})
	}
}

// startProcess runs a test in a process of its own, with one more environment variable, and returns the first line that
// it writes.
func startProcess(t *testing.T, test, variable string) (process *exec.Cmd, line string) {
	process = exec.Command(os.Args[0], "-test.run=^"+test+"$") //nolint:gosec // the test itself
	process.Env = append(os.Environ(), variable)
	stdout, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	line, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return process, line
}

func kill(t *testing.T, process *exec.Cmd) {
	require.NoError(t, process.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(t, process.Wait(), &exit)
	require.Equal(t, -1, exit.ExitCode(), "killed")
}

// publishes has a consumer publish all that it gets.
func publishes(t *testing.T, client pulsar.Client, how, topic, by string) *redelivery.Consumer {
	opts := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: sub, Type: pulsar.Shared, RetryEnable: how != "dead",
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 100}}
	options := []redelivery.Option{redelivery.WithLogger(slog.New(slog.DiscardHandler))}
	switch how {
	case "dead":
		opts.DLQ.MaxDeliveries = 1
	case "move":
		options = append(options, redelivery.WithNackRetryTopic(time.Minute), redelivery.WithNackRedeliveryDelay(time.Hour))
	}
	c, err := redelivery.Subscribe(client, opts, options...)
	require.NoError(t, err)
	go func() {
		for first := true; ; first = false {
			msg, err := c.Receive(bg)
			if err != nil {
				return
			}
			if first && by != "last" {
				fmt.Println("begun")
			}
			switch {
			case how == "reconsume":
				c.ReconsumeLaterWithCustomProperties(msg, map[string]string{"by": by}, time.Hour)
			default:
				_ = c.NackWithReason(msg, errors.New("no"))
			}
		}
	}()
	return c
}

// toBeKilled publishes until it is killed.
func toBeKilled(t *testing.T, how []string) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: how[1], Logger: logtest.Client(t)})
	require.NoError(t, err)
	publishes(t, client, how[0], how[2], how[3])
	_, _ = io.Copy(io.Discard, os.Stdin)
	time.Sleep(time.Minute)
}
