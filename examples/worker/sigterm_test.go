package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

const programVariable = "EXAMPLE_WORKER"

// TestMain runs the program itself in the processes that TestProgramEndedBySIGTERMServesEachOrderOnce starts.
func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(logtest.Quiet{M: m}.Run())
}

// The test sends SIGTERM to the program in the middle of its work, and starts it again, several times. It uses the
// broker that PULSAR_URL names, or one in this process.
func TestProgramEndedBySIGTERMServesEachOrderOnce(t *testing.T) {
	const orders, eachRun = 20, 6
	url := os.Getenv("PULSAR_URL")
	if url == "" {
		url = pulsartest.NewServer(t).URL()
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: logtest.Client(t)})
	require.NoError(t, err)
	defer client.Close()
	name := demo.Topic("worker")
	served := map[int]int{}
	run := func(until func() bool) {
		cmd := exec.Command(os.Args[0], "-url", url, "-topic", name, "-orders", "0")
		cmd.Env = append(os.Environ(), programVariable+"=1")
		cmd.Stderr = t.Output()
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
		for lines, reported := bufio.NewScanner(stdout), false; lines.Scan(); {
			var id int
			if _, err := fmt.Sscanf(lines.Text(), "served %d", &id); err == nil {
				served[id]++
			}
			if !reported && until() {
				reported = true
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			}
		}
		require.NoError(t, cmd.Wait())
	}
	subscription, err := client.Subscribe(pulsar.ConsumerOptions{Topic: name, SubscriptionName: "bar",
		Type: pulsar.Shared})
	require.NoError(t, err)
	subscription.Close() // the topic has a subscription that keeps the orders
	*topic, *guests = name, orders
	require.NoError(t, publish(context.Background(), client))
	runs := 0
	for ; len(served) < orders-1 && runs < orders; runs++ { // one order cannot be read
		before := len(served)
		run(func() bool { return len(served) >= min(before+eachRun, orders-1) })
	}
	require.Greater(t, runs, 1)
	for id := range orders {
		require.Equal(t, map[bool]int{false: 1, true: 0}[id == unreadable], served[id], "order %d: %v", id, served)
	}
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: name + "-bar-DLQ",
		StartMessageID: pulsar.EarliestMessageID()})
	require.NoError(t, err)
	defer reader.Close()
	letters := 0
	for ; reader.HasNext(); letters++ {
		msg, err := reader.Next(context.Background())
		require.NoError(t, err)
		require.Equal(t, "~~~", string(msg.Payload()))
	}
	require.Equal(t, 1, letters)
	t.Logf("%d orders, %d runs: each served once, %d dead letter", orders, runs, letters)
}
