package redelivery

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// AttemptLog configures the log of attempts; see WithAttemptLog. A zero field means its default.
type AttemptLog struct {
	// Topic is the topic of the log. All consumers of a subscription need the same topic. Two subscriptions need
	// different topics, or their counts would be mixed up. The topic must exist, unless the broker creates topics on
	// use. A name without a namespace gets the namespace of the first topic. Default: <topic>-<subscription>-ATTEMPTS,
	// where <topic> is the first topic without -partition-N.
	Topic string
	// OpenTimeout is how long Subscribe and Wrap may take to read the log. Default: 30 s.
	OpenTimeout time.Duration
	// Optional lets Subscribe and Wrap succeed if the log cannot be read within OpenTimeout. The Consumer then keeps
	// trying; until it has read the log, counts and delays are those of this process alone. Each failure is logged and
	// reported to observers. Without Optional, Subscribe and Wrap return an error. Default: false.
	Optional bool
	// Retention is how long after its due time a record stays in the log if nothing more happens to its message.
	// Default: one day.
	Retention time.Duration
}

// WithAttemptLog (default: none) keeps redelivery counts and due times in a topic, so that they outlive the process.
// After a restart a failed message is not early, its count goes on, and MaxDeliveries still holds, on every
// subscription type. Each consumer of the subscription needs the option. A consumer reads the log before its first
// message, and follows it afterwards.
//
// Each failure writes a record within a few milliseconds; many records share a message of the log. A message that does
// not fail writes nothing, unless a Worker has WithCrashLimit. A failure in the last milliseconds before a crash is not
// counted. A Seek clears the log. docs/attempts.md says how much the log costs and when not to use it. The option needs
// a durable subscription, and a client: that of Subscribe or WithClient.
func WithAttemptLog(log AttemptLog) Option {
	return func(s *settings) error {
		s.attempts = &log
		return cmp.Or(checkDuration("WithAttemptLog's OpenTimeout", log.OpenTimeout, true),
			checkDuration("WithAttemptLog's Retention", log.Retention, true),
			checkName("WithAttemptLog's topic", log.Topic))
	}
}

const defaultOpenTimeout = 30 * time.Second

// AttemptLog returns the log of WithAttemptLog, or nil if there is none. Close closes it.
func (c *Consumer) AttemptLog() *attempts.Log { return c.attempts }

// openLog opens the log of attempts and reads it. The log calls failed when it cannot be used. Without WithAttemptLog,
// openLog returns nil.
func (s *settings) openLog(failed func(error)) (*attempts.Log, error) {
	origin, subscription := originOf(s.opts), s.opts.SubscriptionName
	if s.attempts == nil || !s.isWrapped && (origin == "" || subscription == "") { // client.Subscribe returns the error
		return nil, nil
	}
	name := topicname.In(origin, cmp.Or(s.attempts.Topic, attempts.Topic(topicname.Full(origin), subscription)))
	if err := cmp.Or(s.checkDefaultTopic("WithAttemptLog", s.attempts.Topic), checkName("WithAttemptLog's topic", name),
		checkUnread(s.opts, name, "WithAttemptLog's topic")); err != nil {
		return nil, err
	}
	if base := topicname.Base(name); base == s.RetryTopic || base == s.DeadLetterTopic {
		// consumers would take records for messages
		return nil, invalid("WithAttemptLog's topic", name, "another one than those of retries and dead letters")
	}
	log, err := attempts.Open(s.client, attempts.Options{
		Topic:     name,
		Name:      s.opts.Name,
		Retention: s.attempts.Retention,
		Logger:    s.logger,
		Failed:    failed,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: WithAttemptLog: %w", ErrInvalidOption, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.attempts.OpenTimeout, defaultOpenTimeout))
	defer cancel()
	if err := log.Ready(ctx); err != nil && !s.attempts.Optional {
		log.Close()
		return nil, fmt.Errorf("redelivery: WithAttemptLog: %w", err)
	}
	return log, nil
}

func (c *Consumer) closeLog() {
	if c.attempts != nil {
		c.attempts.Close()
	}
}

// flushLog waits up to a second until other consumers can read the records of this Consumer. The log reports failures.
func (c *Consumer) flushLog() {
	if c.attempts != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.attempts.Flush(ctx)
	}
}

// logUnusable reports to observers that the log cannot be used. The log itself has logged the error.
func (c *Consumer) logUnusable(err error) {
	if c.inner.consumer.Load() == nil { // Subscribe has not returned
		return
	}
	c.failures.Add(1)
	if c.observer.Failed != nil {
		c.observerCalls.add(c, func() { c.observer.Failed(Failed{c, c.settings.Subscription, "attempt log", err}) })
	}
}

// addRecord adds the log's record of an arriving message to cp.
func (c *Consumer) addRecord(msg pulsar.Message, cp *partition.Copy) {
	if c.attempts == nil {
		return
	}
	if r, ok := c.attempts.Arrive(attempts.KeyOf(msg)); ok {
		cp.Tries = r.Count
		cp.Wait = max(cp.Wait, time.Until(r.Due))
	}
}

// raiseCount raises d.Count to the log's count of the message, since another consumer may have written a higher count.
func (c *Consumer) raiseCount(d *partition.Delivery) {
	if c.attempts == nil || d.ID.Topic == "" {
		return
	}
	if r, ok := c.attempts.Find(keyOf(d.ID)); ok {
		d.Count = max(d.Count, r.Count)
	}
}

// isStillDue reports whether a message may be handed out again now. It returns false, and the message waits, if another
// consumer has failed on the message since or may be handling it.
func (c *Consumer) isStillDue(d *partition.Delivery) bool {
	if c.attempts == nil || !d.Again && !d.FromMemory { // addRecord has read the log for a new copy
		return true
	}
	r, ok := c.attempts.Again(keyOf(d.ID))
	if !ok {
		return true
	}
	wait := time.Until(r.Due)
	if !r.Due.After(c.start.Add(d.Due)) { // the message has waited that long already
		wait = 0
	}
	if r.Count <= d.Count && wait <= 0 {
		return true
	}
	now := c.lock()
	stillDue := c.group.Recall(now, d, r.Count, wait)
	c.unlockAndAct(now)
	return stillDue
}

func keyOf(id partition.ID) attempts.Key {
	return attempts.Key{Topic: id.Topic, Ledger: id.Ledger, Entry: id.Entry, Index: max(0, id.Index)}
}

// recordFailure writes to the log that the application failed on a message, and removes the record if the message was
// settled in the meantime.
func (c *Consumer) recordFailure(d *partition.Delivery, delay time.Duration, how nackOptions) {
	if c.attempts == nil {
		return
	}
	failed := *d
	c.raiseCount(&failed) // otherwise a failure that another consumer logged would hide this one
	if !how.snoozed {
		failed.Count += min(1, ^failed.Count)
	}
	key := keyOf(d.ID)
	c.attempts.Failed(key, failed.Count, delay, c.causeOf(how.reason))
	c.mu.Lock()
	i, _, _ := c.group.Find(d.ID, partition.AnyHand)
	c.mu.Unlock()
	if i.State == partition.Settled {
		c.attempts.Settled(key)
	}
}

// causeOf returns the text of an error for the log, or with OmitCause only its type: the text may quote the payload.
func (c *Consumer) causeOf(reason error) (cause string) {
	if reason == nil {
		return ""
	}
	defer func() { // an error of the application may be a nil pointer
		if recover() != nil {
			cause = publishing.TypeName(reason)
		}
	}()
	if c.settings.deadLetterPolicy.OmitCause {
		return publishing.TypeName(reason)
	}
	return reason.Error()
}

// textOf returns the text of an error for log lines: that of causeOf, cut to its first KiB as in a dead letter.
func (c *Consumer) textOf(reason error) string {
	text := c.causeOf(reason)
	return strings.ToValidUTF8(text[:min(len(text), 1024)], "")
}
