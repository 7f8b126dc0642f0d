// Attempts handles an order that always fails, in processes that are killed one after another. WithAttemptLog keeps
// redelivery counts and due times in a Pulsar topic. So each process continues where the previous one was killed, and
// the fifth failure makes a dead letter. The subscription is Exclusive: the broker does not count redeliveries.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
)

const maxDeliveries, eachProcess = 5, 2

var topic = flag.String("topic", "",
	"handle the orders of this `topic`; empty for the process that starts and kills the others")

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	client, stop, err := demo.Connect()
	if err != nil {
		return err
	}
	defer stop()
	if *topic != "" {
		return handle(client)
	}
	*topic = demo.Topic("attempts")
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: *topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	first, err := subscribe(client) // creates the subscription before there is a message
	if err != nil {
		return err
	}
	first.Close()
	if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("order 1")}); err != nil {
		return err
	}
	fmt.Println("process   delivery   since its last failure   then")
	var delivery, process uint32
	for failed := (time.Time{}); delivery < maxDeliveries; {
		process++
		delivery, failed, err = runAndKill(process, delivery, failed)
		if err != nil {
			return err
		}
	}
	fmt.Printf("\nOK: %d processes, %d deliveries, none early or uncounted, and a dead letter.\n", process, delivery)
	return nil
}

// runAndKill makes a process handle the order, and kills it after two failures.
func runAndKill(process, delivery uint32, failed time.Time) (uint32, time.Time, error) {
	cmd := exec.Command(os.Args[0], "-topic", *topic, "-url", demo.URL()) // this program
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, failed, err
	}
	if err := cmd.Start(); err != nil {
		return 0, failed, err
	}
	defer func() { _, _ = io.Copy(io.Discard, stdout); _ = cmd.Wait() }() // Wait returns "signal: killed"
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(stdout)
	for n := 0; n < eachProcess && delivery < maxDeliveries && lines.Scan(); n++ {
		var redeliveries uint32
		var nanos int64
		if _, err := fmt.Sscan(lines.Text(), &redeliveries, &nanos); err != nil {
			return 0, failed, err
		}
		received := time.Unix(0, nanos)
		waited, then := "-", "it fails"
		delivery++
		if delivery > 1 {
			waited = received.Sub(failed).Round(10 * time.Millisecond).String()
			if want := policy.Next(delivery - 2); redeliveries != delivery-1 || received.Sub(failed) < want {
				return 0, failed, fmt.Errorf("redelivery %d after %s, want %d after %v", redeliveries, waited,
					delivery-1, want)
			}
		}
		failed = received
		switch time.Sleep(200 * time.Millisecond); { // the log has the failure within milliseconds
		case delivery == maxDeliveries:
			then = "it fails, and is a dead letter"
		case n == eachProcess-1:
			then = "it fails, and the process is killed"
		}
		fmt.Printf("%7d %10d %24s   %s\n", process, delivery, waited, then)
	}
	return delivery, failed, lines.Err()
}

var policy = backoff.Exponential{Min: 500 * time.Millisecond, Max: 2 * time.Second}

func subscribe(client pulsar.Client) (*redelivery.Consumer, error) {
	return redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: *topic, SubscriptionName: "billing", Type: pulsar.Exclusive},
		redelivery.WithNackRedeliveryBackoff(policy),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: maxDeliveries,
			InitialSubscriptionName: "inspect"}),
		redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(slog.New(slog.DiscardHandler)))
}

// handle fails on each message, until this process is killed. It prints the message's redelivery count and the time.
func handle(client pulsar.Client) error {
	consumer, err := subscribe(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for {
		msg, err := consumer.Receive(context.Background())
		if err != nil {
			return err
		}
		fmt.Println(consumer.RedeliveryCount(msg), time.Now().UnixNano())
		if err := consumer.NackWithReason(msg, errors.New("always")); err != nil {
			return err
		}
	}
}
