package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// restartAll prints a table of graceful restarts: of one process, and of three that are replaced one after another.
func restartAll(client pulsar.Client) {
	fmt.Println("| processes | batch-index acknowledgement | finished before the first SIGTERM | finished messages handled again | dead letters | right | last log lines | after |")
	fmt.Println("|---|---|---:|---:|---:|---:|---|---|")
	good := true
	for _, processes := range []int{1, 3} {
		for _, off := range []bool{true, false} {
			r := restart(client, processes, off)
			fmt.Printf("| %d | %s | %d | %d | %d | %d | %s | %v |\n", processes, map[bool]string{true: "off", false: "by default"}[off],
				r.before, r.again, r.letters, *messages/100, r.said, r.took.Round(time.Second))
			good = good && r.lost == 0 && r.missing == 0
		}
	}
	if !good {
		check(errors.New("a message was neither finished nor became a dead letter"))
	}
}

// restarted is what came of a run with restarts.
type restarted struct {
	before        int // finished before the first SIGTERM
	again         int // messages that were finished more than once
	letters       int // with those that came twice
	lost, missing int // messages that were not finished, and messages that are not among the dead letters
	said          string
	took          time.Duration
}

// restart has processes handle messages of batches as producers make them by default, and replaces each one after SIGTERM, the first when
// half of the messages are finished.
func restart(client pulsar.Client, processes int, off bool) (r restarted) {
	topic := fmt.Sprintf("restart-%d", time.Now().UnixNano())
	subscribed(client, pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription, Type: pulsar.Shared}).Close()
	letters := everyLetter(client, topic)
	file, err := os.CreateTemp("", "restart")
	check(err)
	check(file.Close())
	defer os.Remove(file.Name())
	began := time.Now()
	run := func() *graceful { return startGraceful(topic, file.Name(), off) }
	var running []*graceful
	for range processes {
		running = append(running, run())
	}
	publishByDefault(client, topic)
	for finished(file.Name()).messages() < *messages/2 && time.Since(began) < *limit {
		time.Sleep(20 * time.Millisecond)
	}
	r.before = finished(file.Name()).messages()
	for i, p := range running {
		r.said += p.end()
		running[i] = run()
	}
	right := *messages - *messages/100
	quiet := time.Now()
	for counts, last := finished(file.Name()), 0; time.Since(began) < *limit && time.Since(quiet) < 10*time.Second; counts = finished(file.Name()) {
		if n := counts.all() + letters().all(); n != last || counts.messages() < right || letters().messages() < *messages/100 {
			last, quiet = n, time.Now()
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.took = time.Since(began)
	for _, p := range running {
		p.end()
	}
	counts, dead := finished(file.Name()), letters()
	r.again, r.lost = counts.twice(), right-counts.messages()
	r.letters, r.missing = dead.all(), *messages/100-dead.messages()
	return r
}

// tally is how often each message did something.
type tally map[string]int

func (t tally) messages() int { return len(t) }

func (t tally) all() (n int) {
	for _, times := range t {
		n += times
	}
	return n
}

func (t tally) twice() (n int) {
	for _, times := range t {
		if times > 1 {
			n++
		}
	}
	return n
}

// finished counts the handler's successes by message.
func finished(file string) tally {
	content, err := os.ReadFile(file)
	check(err)
	counts := tally{}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		counts[lines.Text()]++
	}
	return counts
}

// everyLetter subscribes to the dead letters of a topic, and returns a function that counts them by message.
func everyLetter(client pulsar.Client, topic string) func() tally {
	c := subscribed(client, pulsar.ConsumerOptions{Topic: topic + "-" + subscription + "-DLQ", SubscriptionName: "count",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	counts := tally{}
	return func() tally {
		for {
			ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
			msg, err := c.Receive(ctx)
			cancel()
			if err != nil {
				return counts
			}
			counts[string(msg.Payload())]++
			check(c.Ack(msg))
		}
	}
}

// publishByDefault publishes with a producer that has no options.
func publishByDefault(client pulsar.Client, topic string) {
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	check(err)
	defer p.Close()
	for i := range *messages {
		p.SendAsync(bg, &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(p.FlushWithCtx(bg))
}

// graceful is a process of the service.
type graceful struct {
	*exec.Cmd
	log bytes.Buffer
}

func startGraceful(topic, file string, off bool) *graceful {
	self, err := os.Executable()
	check(err)
	p := &graceful{Cmd: exec.Command(self, "-restart", "-child", topic, "-to", file, "-handles", handles.String(), fmt.Sprintf("-index-acks=%t", !off))}
	p.Stderr = &p.log
	check(p.Start())
	return p
}

// end ends the process by SIGTERM, and returns the level and the number of the last line of its Worker.
func (p *graceful) end() (said string) {
	check(p.Process.Signal(syscall.SIGTERM))
	_ = p.Wait()
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "worker: stopped") {
			said = line
		}
	}
	if *verbose {
		fmt.Fprint(os.Stderr, p.log.String())
	}
	_, level, _ := strings.Cut(said, "level=")
	level, _, _ = strings.Cut(level, " ")
	_, unfinished, _ := strings.Cut(said, " unfinished=")
	unfinished, _, _ = strings.Cut(strings.TrimSpace(unfinished), " ")
	return level + " unfinished=" + unfinished + " "
}

// serve is the process that is restarted: the README's service. One message in ten fails at its first two deliveries, one in a hundred always.
func serve(client pulsar.Client) {
	ctx, stop := signal.NotifyContext(bg, os.Interrupt, syscall.SIGTERM)
	defer stop()
	to, err := os.OpenFile(*recordsTo, os.O_APPEND|os.O_WRONLY, 0)
	check(err)
	options := []redelivery.Option{
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 200 * time.Millisecond, Max: time.Second}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 4}),
	}
	if !*indexAcks {
		options = append(options, redelivery.WithoutBatchIndexAcks())
	}
	consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{Topic: *child, SubscriptionName: subscription, Type: pulsar.Shared}, options...)
	check(err)
	defer consumer.Close()
	w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
		time.Sleep(*handles)
		var i int
		if _, err := fmt.Sscan(string(msg.Payload()), &i); err != nil {
			return err
		}
		if i%100 == 7 || i%10 == 3 && msg.RedeliveryCount() < 2 {
			return errors.New("it fails")
		}
		_, err := fmt.Fprintln(to, i)
		return err
	}, worker.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	check(err)
	check(w.Run(ctx))
}
