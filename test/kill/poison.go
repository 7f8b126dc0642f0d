package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// poisonAll prints a table of what one poison among good messages does.
func poisonAll(client pulsar.Client) {
	table := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "type\tprocesses\tbatched\tclient\tcrashes\tgood ones handled\tpoison is a dead letter\tat an end after")
	for _, c := range []struct {
		name      string
		processes int
	}{{"Exclusive", 1}, {"Shared", 3}} {
		for _, batched := range []bool{false, true} {
			for _, how := range []string{"log", "plain"} {
				if how == "plain" && !*plain {
					continue
				}
				crashed, good, dead, took := runPoison(client, kinds[c.name], c.processes, batched, how == "plain")
				fmt.Fprintf(table, "%s\t%d\t%t\t%s\t%d\t%d of %d\t%t\t%s\n", c.name, c.processes, batched, how, crashed, good, *messages, dead, took)
				check(table.Flush())
			}
		}
	}
}

// runPoison has processes handle messages under a supervisor, until all are handled or dead.
func runPoison(client pulsar.Client, kind pulsar.SubscriptionType, processes int, batched, plain bool) (crashed int64, good int, dead bool, took string) {
	topic := fmt.Sprintf("poison-%d", time.Now().UnixNano())
	c, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription, Type: kind})
	check(err)
	c.Close()
	letters := deadLetters(client, topic)
	publish(client, topic, 0, *messages/2, batched)
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	check(err)
	defer p.Close()
	_, err = p.Send(bg, &pulsar.ProducerMessage{Payload: []byte(poison), Key: "k1"})
	check(err)
	publish(client, topic, *messages/2, *messages, batched)
	file, err := os.CreateTemp("", "kill")
	check(err)
	defer os.Remove(file.Name())
	defer file.Close()
	began := time.Now()
	var crashes atomic.Int64
	over := make(chan struct{})
	var supervisors sync.WaitGroup
	for range processes {
		supervisors.Go(func() {
			for {
				p := start(topic, kind, file.Name(), plain, "-poison", "-crash-limit", fmt.Sprint(*crashLimit))
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
		dead, good = letters() > 0, handledWell(file.Name())
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
func handledWell(file string) int {
	f, err := os.Open(file)
	check(err)
	defer f.Close()
	well := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if what, rest, _ := strings.Cut(lines.Text(), " "); what == "ok" {
			name, _, _ := strings.Cut(rest, " ")
			well[name] = true
		}
	}
	return len(well)
}
