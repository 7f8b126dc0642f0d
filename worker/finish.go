package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// This file has the end of a drain: batches of producers that were begun are finished, since the broker hears of a batch when all of it is
// acknowledged, and would send the whole of it again.

// finishing is what a drain does about batches that were begun.
type finishing struct {
	aside map[batch]bool // batches of which a message was left
	gone  bool           // they cannot be finished in time
	until time.Time      // the end of the drain timeout; zero before the drain
}

// batch names the entry of a topic that a message came in.
type batch struct {
	topic         string
	ledger, entry int64
}

func batchOf(msg pulsar.Message) batch {
	return batch{msg.Topic(), msg.ID().LedgerID(), msg.ID().EntryID()}
}

var errNothingToFinish = errors.New("worker: no batch is left that was begun")

// takePoll is how long a slot waits for a message of a batch before it looks whether another slot got the last one.
const takePoll = 20 * time.Millisecond

// takeToFinish takes what is left of the batches that were begun.
func (s *slot) takeToFinish() error {
	if !s.finishBatches || s.pauser.isAsked() || s.outage.isOn() {
		return errNothingToFinish
	}
	return s.takeSome(s.working)
}

// nextToFinish takes a message of a batch that was begun.
func (r *run) nextToFinish(ctx context.Context) (task, error) {
	for began := time.Now(); time.Since(began) < patience; {
		if !r.hasToFinish() {
			return task{}, errNothingToFinish
		}
		short, cancel := context.WithTimeout(ctx, takePoll)
		t, err := r.receive(short)
		cancel()
		switch {
		case err == nil && r.isBegun(t):
			return t, nil
		case err == nil: // it is of the next batch, and comes again with it
			r.counts.left.Add(1)
			t.beat.stop()
			r.keepLeft(&t)
		case ctx.Err() != nil || short.Err() == nil:
			return task{}, err
		}
	}
	return task{}, errNothingToFinish
}

// isBegun reports whether a message belongs to a batch that was begun. Nothing of its key is handled after one that does not.
func (r *run) isBegun(t task) bool {
	d, err := r.consumer.Delivery(t.msg)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && d.Begun && !r.finishing.aside[batchOf(t.msg)] {
		return true
	}
	r.finishing.setAside(t)
	return false
}

// setAside notes that a message is left, so that its batch cannot be finished. The caller holds the run's mu.
func (f *finishing) setAside(t task) {
	if f.aside == nil {
		f.aside = map[batch]bool{}
	}
	f.aside[batchOf(t.msg)] = true
}

// hasToFinish reports whether batches were begun of which messages are prefetched, or wait for their keys, and whether there is time for
// them: to handle some of them only would repeat even more.
func (r *run) hasToFinish() bool {
	n := r.consumer.Stats().Arriving + r.lanes.readyNow()
	return n > 0 && r.isInTime(n)
}

// mayFinish reports whether a slot may handle what it has in a drain: it is of batches that were begun, and there is time for them.
func (r *run) mayFinish(tasks []task) bool {
	return r.finishBatches && !slices.ContainsFunc(tasks, func(t task) bool { return !r.isBegun(t) }) &&
		r.isInTime(len(tasks)+r.consumer.Stats().Arriving)
}

// isInTime reports whether there is time for n messages before the drain timeout is over.
func (r *run) isInTime(n int) bool {
	needs := time.Duration(n) * time.Duration(r.pace.Load()) / time.Duration(r.concurrency)
	if r.limiter != nil {
		needs = max(needs, time.Duration(min(float64(math.MaxInt32), float64(n)/float64(r.limiter.Limit()))*float64(time.Second)))
	}
	r.mu.Lock()
	if r.finishing.until.IsZero() {
		r.finishing.until = time.Now().Add(r.drainTimeout)
	}
	late := time.Now().Add(needs).After(r.finishing.until)
	told := r.finishing.gone
	r.finishing.gone = late
	r.mu.Unlock()
	if late && !told {
		r.logger.LogAttrs(r.lasting, slog.LevelWarn, "worker: the rest of the batches cannot be handled within the drain timeout",
			slog.Int("messages", n), slog.Duration("takes", needs))
	}
	return !late
}

// logStopped logs how many messages were finished, in all and by the drain, and how many come again: messages left to the broker, messages
// that wait for redelivery, and finished messages of unfinished batches. Of the last it warns.
func (r *run) logStopped(drained uint64, stuck int) {
	stats := r.consumer.Stats()
	attrs := append(r.who(), "finished", r.counts.finished.Load(), "drained", drained, "left", r.counts.left.Load(),
		"waiting", stats.Waiting, "stuck", stuck, "unfinished", stats.Unfinished)
	if stats.Unfinished == 0 {
		r.logger.Info("worker: stopped", attrs...)
		return
	}
	msg, why := "worker: stopped; finished messages come again", "the consumer sends no batch-index acknowledgements"
	switch stats.IndexAcks {
	case redelivery.IndexAcksIgnored:
		why = "the broker keeps no batch-index acknowledgements"
	case redelivery.IndexAcksUnknown:
		msg, why = "worker: stopped; finished messages may come again", "the broker may keep no batch-index acknowledgements"
	default: // off
	}
	r.logger.Warn(msg, append(attrs, "why", why+", and other messages of their batches are not finished",
		"remedy", "acknowledgmentAtBatchIndexLevelEnabled=true in broker.conf, then EnableBatchIndexAcknowledgment: true in pulsar.ConsumerOptions")...)
}

// paced notes how long a slot took for each of n messages, averaged over the last ones.
func (r *run) paced(took time.Duration, n int) {
	before, now := r.pace.Load(), int64(took)/int64(max(1, n))
	if before > 0 {
		now = before + (now-before)/8
	}
	r.pace.Store(now)
}
