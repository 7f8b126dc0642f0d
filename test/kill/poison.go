package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// poisonAll prints a table of what one poison among good messages does.
func poisonAll(client pulsar.Client) {
	const row = "%-11v %-11v %-14v %-9v %-8v %-9v %-19v %-24v %v\n"
	fmt.Printf(row, "type", "processes", "poison comes", "batched", "client", "crashes", "good ones handled", "poison is a dead letter", "at an end after")
	for _, c := range []struct {
		name      string
		processes int
		quiet     bool
	}{{"Exclusive", 1, false}, {"Shared", 3, false}, {"Shared", 3, true}} {
		for _, batched := range []bool{false, true} {
			for _, how := range []string{"log", "plain"} {
				if how == "plain" && !*plain {
					continue
				}
				crashed, good, dead, took := runPoison(client, kinds[c.name], c.processes, c.quiet, batched, how == "plain")
				comes := "in a backlog"
				if c.quiet {
					comes = "alone"
				}
				fmt.Printf(row, c.name, c.processes, comes, batched, how, crashed, fmt.Sprintf("%d of %d", good, *messages), dead, took)
			}
		}
	}
}

// runPoison has processes handle messages under a supervisor, until all are handled or dead. The poison is among the messages, or comes
// when they are handled and the processes have nothing to do.
func runPoison(client pulsar.Client, kind pulsar.SubscriptionType, processes int, quiet, batched, plain bool) (crashed int64, good int, dead bool, took string) {
	topic := fmt.Sprintf("poison-%d", time.Now().UnixNano())
	c, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription, Type: kind})
	check(err)
	c.Close()
	letters := deadLetters(client, topic)
	publish(client, topic, 0, *messages/2, batched)
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	check(err)
	defer p.Close()
	poisons := func() {
		_, err := p.Send(bg, &pulsar.ProducerMessage{Payload: []byte(poison), Key: "k1"})
		check(err)
	}
	if !quiet {
		poisons()
	}
	publish(client, topic, *messages/2, *messages, batched)
	dir := newFolder()
	defer os.RemoveAll(dir)
	began := time.Now()
	var crashes atomic.Int64
	over := make(chan struct{})
	var supervisors sync.WaitGroup
	for range processes {
		supervisors.Go(func() {
			for {
				p := start(topic, kind, dir, plain, "-poison", "-crash-limit", fmt.Sprint(*crashLimit))
				ended := make(chan error, 1)
				go func() { ended <- p.Wait() }()
				select {
				case <-ended:
					if p.ProcessState.ExitCode() == 3 {
						crashes.Add(1)
					}
				case <-over:
					_ = p.Process.Kill()
					<-ended
					return
				}
			}
		})
	}
	until := began.Add(*limit)
	for time.Now().Before(until) && (!dead || good < *messages) {
		time.Sleep(100 * time.Millisecond)
		dead, good = letters() > 0, handledWell(dir)
		if quiet && good == *messages {
			quiet = false
			time.Sleep(time.Second)
			poisons()
		}
	}
	close(over)
	supervisors.Wait()
	took = time.Since(began).Round(time.Second).String()
	if !dead || good < *messages {
		took = "not after " + took
	}
	return crashes.Load(), good, dead, took
}

// handledWell counts the messages that were handled.
func handledWell(dir string) int {
	c := history.New(history.Rules{})
	check(history.ReadFolder(dir, c.Add))
	summary, _ := c.Finish()
	return summary.Settled
}
