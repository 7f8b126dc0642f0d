package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// work is what consumers have to do, and how.
type work struct {
	URL, Topic      string
	Type            pulsar.SubscriptionType
	Messages        int
	Processes       int           // consumers in processes of their own; 0 for one in this process
	Min             time.Duration // of the backoff; Max is ten times as much
	Queue           int           // ReceiverQueueSize; 0 for the default
	AckWithResponse bool
	NackAll         bool // every message fails once, by a nack; else some in every way there is, up to three times
	Reconsume       bool // some go through the retry topic
}

const (
	subscription   = "chaos"
	ackTimeout     = 3 * time.Second
	reconsumeDelay = 2 * time.Second
	keepAlive      = 5 * time.Second
)

func (w work) policy() backoff.RedeliveryBackoff {
	return backoff.Exponential{Min: w.Min, Max: 10 * w.Min, Multiplier: 2}
}

func (w work) options() (pulsar.ConsumerOptions, []redelivery.Option) {
	opts := pulsar.ConsumerOptions{
		Topic: w.Topic, SubscriptionName: subscription, Type: w.Type, ReceiverQueueSize: w.Queue,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: w.AckWithResponse,
		RetryEnable: w.Reconsume,
	}
	if w.Reconsume {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1000}
	}
	options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(w.policy()), redelivery.WithLogger(quiet)}
	if !w.NackAll {
		options = append(options, redelivery.WithAckTimeout(ackTimeout),
			redelivery.WithAckTimeoutRedeliveryBackoff(w.policy()))
	}
	return opts, options
}

var (
	quiet  = slog.New(slog.NewTextHandler(io.Discard, nil))
	silent = plog.NewLoggerWithSlog(quiet)
)

func newClient(w work) (pulsar.Client, error) {
	return pulsar.NewClient(pulsar.ClientOptions{
		URL: w.URL, KeepAliveInterval: keepAlive, OperationTimeout: 3 * time.Second, Logger: silent,
	})
}

// consumer is an application: it fails on some messages, in all ways, and acknowledges them in the end.
type consumer struct {
	*redelivery.Consumer
	client pulsar.Client
	work   work
	policy backoff.RedeliveryBackoff
	tell   func(event)
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	failures map[int]int          // of each message
	due      map[string]time.Time // not before; of each message id that is to come again
}

// startConsumer subscribes and begins to work. Events of a message are told in order.
func startConsumer(client pulsar.Client, w work, tell func(event)) (*consumer, error) {
	opts, options := w.options()
	inner, err := redelivery.Subscribe(client, opts, options...)
	if err != nil {
		return nil, err
	}
	var telling sync.Mutex
	c := &consumer{Consumer: inner, client: client, work: w, policy: w.policy(), failures: map[int]int{}, due: map[string]time.Time{}, tell: func(e event) {
		telling.Lock()
		defer telling.Unlock()
		tell(e)
	}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for range 4 {
		c.wg.Go(func() {
			for {
				msg, err := c.Receive(c.ctx)
				if err != nil {
					return
				}
				c.handle(msg)
			}
		})
	}
	return c, nil
}

func (c *consumer) close() {
	c.cancel()
	c.wg.Wait()
	c.Close()
}

func (c *consumer) handle(msg pulsar.Message) {
	now := time.Now()
	n, err := strconv.Atoi(string(msg.Payload()[:6]))
	if err != nil {
		panic(fmt.Sprintf("a message that nobody sent: %q", msg.Payload()))
	}
	id := msg.ID().String()
	c.mu.Lock()
	due := c.due[id]
	delete(c.due, id)
	if delay, ok := publishing.DelayTime(msg); ok && due.IsZero() {
		due = msg.PublishTime().Add(delay) // a retry may be published twice, so what was asked for does not tell
	}
	fails := c.failures[n] < n%4
	if c.work.NackAll {
		fails = c.failures[n] == 0
	}
	if fails {
		c.failures[n]++
	}
	c.mu.Unlock()
	if due.IsZero() {
		c.tell(event{What: delivered, Message: n})
	} else {
		c.tell(event{What: redelivered, Message: n, Late: now.Sub(due)})
	}
	if fails {
		c.fail(msg, n)
	} else {
		c.settle(msg, n)
	}
}

// fail fails on a message in one of the ways there are. The time it is due is set before, since it may be here again before
// the call returns.
func (c *consumer) fail(msg pulsar.Message, n int) {
	id := msg.ID().String()
	later := func(delay time.Duration) {
		c.tell(event{What: failed, Message: n, Delay: delay})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.due[id] = time.Now().Add(delay)
	}
	delay := c.policy.Next(c.RedeliveryCount(msg))
	way := n / 4 % 5
	switch {
	case way == 0 && !c.work.NackAll:
		later(delay)
		c.NackID(msg.ID())
	case way == 1 && !c.work.NackAll:
		later(ackTimeout + delay)
		if err := c.InProgress(msg); err != nil { // its time was over already
			c.mu.Lock()
			delete(c.due, id)
			c.mu.Unlock()
		}
	case way == 2 && c.work.Reconsume:
		c.tell(event{What: failed, Message: n, Delay: reconsumeDelay})
		if err := c.ReconsumeLaterAfter(c.ctx, msg, reconsumeDelay, nil); err != nil {
			c.tell(event{What: refused, Message: n})
			c.Nack(msg) // it comes sooner if its ack timeout is over by now
		}
	default:
		later(delay)
		c.Nack(msg)
	}
}

func (c *consumer) settle(msg pulsar.Message, n int) {
	c.tell(event{What: settling, Message: n})
	for c.Ack(msg) != nil {
		if sleep(c.ctx, 100*time.Millisecond); c.ctx.Err() != nil {
			return
		}
	}
	c.tell(event{What: settled, Message: n})
}
