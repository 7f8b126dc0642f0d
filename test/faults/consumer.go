package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/history"
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
	NackAll         bool   // every message fails once, by a nack; else some in every way there is, up to three times
	Reconsume       bool   // some go through the retry topic
	Partitions      int    // 0 for a topic without; message n is in partition n%Partitions
	Chan            bool   // from Chan in place of Receive
	Wrap            bool   // the handler has messages of its own
	Log             bool   // there is a log of attempts, with a client of its own by LogURL
	LogURL, Token   string // Token says who the consumer is, if the broker asks
	Dir, Name       string // of the history, and of the consumer in it
	Cumulative      bool   // one goroutine, of which no message fails, acknowledges every tenth with what is before it
}

// topics are the topic's partitions, or the topic that has none.
func (w work) topics() []string {
	names := []string{w.Topic}
	for i := range w.Partitions {
		names = append(names[:i], fmt.Sprintf("%s-partition-%d", w.Topic, i))
	}
	return names
}

// apart is how far the numbers of a partition's messages are apart.
func (w work) apart() int { return max(1, w.Partitions) }

const (
	subscription   = "chaos"
	ackTimeout     = 3 * time.Second
	reconsumeDelay = 2 * time.Second
	keepAlive      = 5 * time.Second
	pace           = 10 * time.Millisecond // of each message that cannot fail, so that there is work while the fault is made
)

func (w work) policy() backoff.RedeliveryBackoff {
	return backoff.Exponential{Min: w.Min, Max: 10 * w.Min, Multiplier: 2}
}

func (w work) options() (pulsar.ConsumerOptions, []redelivery.Option) {
	opts := pulsar.ConsumerOptions{
		Topic: w.Topic, SubscriptionName: subscription, Type: w.Type, ReceiverQueueSize: w.Queue,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: w.AckWithResponse,
		RetryEnable: w.Reconsume,
		// Else a batch goes from one to the other until one of them has acknowledged all of it, which takes minutes.
		EnableBatchIndexAcknowledgment: w.Processes > 0,
	}
	if w.Reconsume {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1000}
	}
	options := []redelivery.Option{redelivery.WithNackRedeliveryBackoff(w.policy()), redelivery.WithLogger(quiet)}
	if !w.NackAll && !w.Cumulative {
		options = append(options, redelivery.WithAckTimeout(ackTimeout),
			redelivery.WithAckTimeoutRedeliveryBackoff(w.policy()))
	}
	return opts, options
}

// consumer is an application: it fails on some messages, in all ways, and acknowledges them in the end.
type consumer struct {
	*redelivery.Consumer
	client    pulsar.Client
	logClient pulsar.Client // nil without a log
	work      work
	policy    backoff.RedeliveryBackoff
	*record
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	failures map[int]int // of each message
}

// startConsumer subscribes and begins to work.
func startConsumer(client pulsar.Client, w work) (_ *consumer, err error) {
	c := &consumer{client: client, work: w, policy: w.policy(), failures: map[int]int{}}
	if c.record, err = newRecord(w.Dir, w.Name); err != nil {
		return nil, err
	}
	opts, options := w.options()
	options = append(options, redelivery.WithObserver(redelivery.Observer{Lost: func(l redelivery.Lost) {
		c.note(history.Event{Kind: history.Disconnected, Note: string(l.Why)})
	}}))
	more, err := c.withLog(w)
	if err != nil {
		return nil, err
	}
	if c.Consumer, err = redelivery.Subscribe(client, opts, append(options, more...)...); err != nil {
		if c.logClient != nil {
			c.logClient.Close()
		}
		return nil, err
	}
	c.note(history.Event{Kind: history.Started})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if w.Cumulative {
		c.wg.Go(c.cumulate)
		return c, nil
	}
	for range 4 {
		c.wg.Go(func() {
			for {
				msg, err := c.next(c.ctx)
				if err != nil {
					return
				}
				c.handle(msg)
			}
		})
	}
	return c, nil
}

// own is a message as an application may have it: decoded, and with what was received inside.
type own struct{ pulsar.Message }

func (m own) Payload() []byte { return append(m.Message.Payload()[:6:6], " decoded"...) }

// next takes a message in the way that the work asks for.
func (c *consumer) next(ctx context.Context) (msg pulsar.Message, err error) {
	if c.work.Chan {
		select {
		case msg = <-c.Chan():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	} else if msg, err = c.Receive(ctx); err != nil {
		return nil, err
	}
	if c.work.Wrap {
		msg = own{msg}
	}
	return msg, nil
}

func number(payload []byte) int {
	n, err := strconv.Atoi(string(payload[:6]))
	if err != nil {
		panic(fmt.Sprintf("a message that nobody sent: %q", payload))
	}
	return n
}

// cumulate acknowledges every tenth message of a partition and, when nothing has come for a while, the last one. Only those that it was
// handed out are told as settled, so that one that an acknowledgement covered and nobody got counts as lost.
func (c *consumer) cumulate() {
	open := make([][]pulsar.Message, c.work.apart()) // of each partition
	ack := func(partition int) {
		if len(open[partition]) > 0 {
			c.settle(c.AckCumulative, open[partition]...)
		}
		open[partition] = nil
	}
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		msg, err := c.next(ctx)
		cancel()
		if err != nil {
			for partition := range open {
				ack(partition)
			}
			continue
		}
		n := number(msg.Payload())
		c.about(n, history.Event{Kind: history.Delivered, Count: int(c.RedeliveryCount(msg))})
		sleep(c.ctx, pace)
		partition := n % c.work.apart()
		open[partition] = append(open[partition], msg)
		if n/c.work.apart()%10 == 4 { // in the middle of a batch
			ack(partition)
		}
	}
}

func (c *consumer) close() {
	c.cancel()
	c.wg.Wait()
	c.Close()
	c.note(history.Event{Kind: history.Closed})
	if c.logClient != nil {
		c.logClient.Close()
	}
}

// note writes what happened to the consumer.
func (c *consumer) note(e history.Event) {
	e.Consumer = c.work.Name
	c.record.note(e)
}

// about writes what happened to a message.
func (c *consumer) about(n int, e history.Event) {
	e.Message = fmt.Sprint(n)
	c.note(e)
}

func (c *consumer) handle(msg pulsar.Message) {
	n, count := number(msg.Payload()), int(c.RedeliveryCount(msg))
	c.about(n, history.Event{Kind: history.Delivered, Count: count})
	c.mu.Lock()
	failures := c.failures[n]
	if c.work.Processes > 0 { // the others' count too, else the last messages take minutes
		failures = max(failures, count)
	}
	fails := failures < n%4
	if c.work.NackAll {
		fails = failures == 0
	}
	if fails {
		c.failures[n]++
	}
	c.mu.Unlock()
	if fails {
		c.fail(msg, n)
	} else {
		c.settle(c.Ack, msg)
	}
}

// fail fails on a message in one of the ways there are.
func (c *consumer) fail(msg pulsar.Message, n int) {
	delay := c.policy.Next(c.RedeliveryCount(msg))
	later := func(kind history.Kind, delay time.Duration) {
		c.about(n, history.Event{Kind: kind, Delay: delay.Microseconds()})
	}
	way := n / 4 % 5
	switch {
	case way == 0 && !c.work.NackAll:
		later(history.Nacked, delay)
		c.NackID(msg.ID())
	case way == 1 && !c.work.NackAll:
		later(history.Nacked, ackTimeout+delay)
		if err := c.InProgress(msg); err != nil { // its time was over already
			c.about(n, history.Event{Kind: history.Refused})
		}
	case way == 2 && c.work.Reconsume:
		later(history.Reconsumed, reconsumeDelay)
		if err := c.ReconsumeLaterAfter(c.ctx, msg, reconsumeDelay, nil); err != nil {
			c.about(n, history.Event{Kind: history.Refused})
			later(history.Nacked, 0) // it comes sooner if its ack timeout is over by now
			c.Nack(msg)
		}
	default:
		later(history.Nacked, delay)
		c.Nack(msg)
	}
}

// settle acknowledges messages, all by the last.
func (c *consumer) settle(ack func(pulsar.Message) error, msgs ...pulsar.Message) {
	for _, msg := range msgs {
		c.about(number(msg.Payload()), history.Event{Kind: history.Acking})
	}
	for ack(msgs[len(msgs)-1]) != nil {
		if sleep(c.ctx, 100*time.Millisecond); c.ctx.Err() != nil {
			return
		}
	}
	for _, msg := range msgs {
		c.about(number(msg.Payload()), history.Event{Kind: history.Acked, Confirmed: c.work.AckWithResponse})
	}
}
