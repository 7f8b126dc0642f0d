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
	"github.com/pulsar-redelivery/redelivery/worker"
)

// consumer is an application with its Consumer. work.App decides how it handles messages.
type consumer struct {
	*redelivery.Consumer
	plain     pulsar.Consumer // a consumer of plain pulsar-client-go, used instead of the Consumer; nil for none
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

// startConsumer subscribes and starts the application.
func startConsumer(client pulsar.Client, w work) (_ *consumer, err error) {
	c := &consumer{client: client, work: w, policy: w.policy(), failures: map[int]int{}}
	if c.record, err = newRecord(w.Dir, w.Name); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	opts, options := w.options()
	if w.Plain {
		return c, c.beginPlain(opts, map[app]worker.Handler{
			byKey: c.handleKey, mixedApp: c.handleMixed, service: c.serve}[w.App])
	}
	options = append(options, redelivery.WithObserver(redelivery.Observer{Lost: func(l redelivery.Lost) {
		c.note(history.Event{Kind: history.Disconnected, Note: string(l.Why)})
	}}))
	switch w.App { //nolint:exhaustive // other apps record deliveries themselves
	case byKey:
		options = append(options, c.observeSettled(), c.observeReceived())
	case poisoned, service:
		options = append(options, c.observeSettled())
	}
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
	if err := c.begin(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// begin starts the goroutines of the application, or its Worker.
func (c *consumer) begin() error {
	switch {
	case c.work.App == byKey, c.work.App == poisoned, c.work.App == service:
		return c.beginWorker()
	case c.work.Cumulative:
		c.wg.Go(c.ackEveryTenth)
		return nil
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
	return nil
}

// ackEveryTenth acknowledges every tenth message of a partition cumulatively. When no message has come for a second, it
// acknowledges the last message of each partition. The history records only delivered messages as settled. So if an
// acknowledgement covers an undelivered message, that message counts as lost.
func (c *consumer) ackEveryTenth() {
	open := make([][]pulsar.Message, c.work.stride()) // by partition: messages not acknowledged yet
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
		c.deliver(msg, int(c.RedeliveryCount(msg)), false)
		sleep(c.ctx, pace)
		partition := n % c.work.stride()
		open[partition] = append(open[partition], msg)
		if n/c.work.stride()%10 == 4 { // not at the end of a batch
			ack(partition)
		}
	}
}

func (c *consumer) close() {
	c.cancel()
	c.wg.Wait()
	if c.plain != nil {
		c.plain.Close()
	} else {
		c.Close()
	}
	c.note(history.Event{Kind: history.Closed})
	if c.logClient != nil {
		c.logClient.Close()
	}
}

// note records an event of the consumer.
func (c *consumer) note(e history.Event) {
	e.Consumer = c.work.Name
	c.record.note(e)
}

// noteOf records an event with a message.
func (c *consumer) noteOf(msg pulsar.Message, e history.Event) {
	e.Message, e.Copy = fmt.Sprint(number(msg.Payload())), msg.ID().String()
	c.note(e)
}

// staleNote marks a delivery that was handled although another consumer may have had the message.
const staleNote = "stale"

// deliver records that the application got a message.
func (c *consumer) deliver(msg pulsar.Message, count int, stale bool) {
	retry, _ := strconv.Atoi(msg.Properties()["RECONSUMETIMES"]) // 0 if it is missing
	c.noteOf(msg, history.Event{Kind: history.Delivered, Count: count, Retry: retry,
		Note: map[bool]string{true: staleNote}[stale]})
}

func (c *consumer) handle(msg pulsar.Message) {
	n, count := number(msg.Payload()), int(c.RedeliveryCount(msg))
	c.deliver(msg, count, false)
	if c.work.App == failing {
		sleep(c.ctx, time.Millisecond)
		c.noteOf(msg, history.Event{Kind: history.Nacked, Delay: c.policy.Next(uint32(count)).Microseconds()})
		c.Nack(msg)
		return
	}
	if c.mustFail(n, count) {
		c.fail(msg, n)
	} else {
		c.settle(c.Ack, msg)
	}
}

// mustFail decides whether message n fails this time, and counts the failure.
func (c *consumer) mustFail(n, count int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	failures := c.failures[n]
	if c.work.Processes > 0 { // count failures in other processes, too: else the last messages would take minutes
		failures = max(failures, count)
	}
	mustFail := failures < n%4
	if c.work.NackAll {
		mustFail = failures == 0
	}
	if mustFail {
		c.failures[n]++
	}
	return mustFail
}

// fail makes message n fail, in a way that depends on n and on the work.
func (c *consumer) fail(msg pulsar.Message, n int) {
	delay := c.policy.Next(c.RedeliveryCount(msg))
	later := func(kind history.Kind, delay time.Duration) {
		c.noteOf(msg, history.Event{Kind: kind, Delay: delay.Microseconds()})
	}
	way := n / 4 % 5
	switch {
	case way == 0 && !c.work.NackAll:
		later(history.Nacked, delay)
		c.NackID(msg.ID())
	case way == 1 && !c.work.NackAll:
		later(history.Nacked, ackTimeout+delay)
		if err := c.InProgress(msg); err != nil { // its ack timeout was over already
			c.noteOf(msg, history.Event{Kind: history.Refused})
		}
	case way == 2 && c.work.Reconsume:
		later(history.Reconsumed, reconsumeDelay)
		if err := c.ReconsumeLaterAfter(c.ctx, msg, reconsumeDelay, nil); err != nil {
			c.noteOf(msg, history.Event{Kind: history.Refused})
			later(history.Nacked, 0) // the message may come sooner: its ack timeout may be over
			c.Nack(msg)
		}
	default:
		later(history.Nacked, delay)
		c.Nack(msg)
	}
}

// settle acknowledges messages by a call of ack with the last one. It repeats the call until ack succeeds.
func (c *consumer) settle(ack func(pulsar.Message) error, msgs ...pulsar.Message) {
	for _, msg := range msgs {
		c.noteOf(msg, history.Event{Kind: history.Acking})
	}
	for ack(msgs[len(msgs)-1]) != nil {
		if sleep(c.ctx, 100*time.Millisecond); c.ctx.Err() != nil {
			return
		}
	}
	for _, msg := range msgs {
		c.noteOf(msg, history.Event{Kind: history.Acked, Confirmed: c.work.AckWithResponse})
	}
}
