package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

// ackPause is the pause before an acknowledgement that failed is tried again.
var ackPause = backoff.Exponential{Min: 100 * time.Millisecond, Max: 5 * time.Second}

// ackRetryTime is how long a failed acknowledgement is tried again. A broker restarts within this time.
const ackRetryTime = time.Minute

// maxLetters is how many dead letters of a batch are published at the same time.
const maxLetters = 100

// settle carries out an outcome.
func (r *run) settle(ctx context.Context, t *task, o *outcome) {
	switch o.verb {
	case ack:
		if r.ack(t, o.since) {
			r.counts.succeeded.Add(1)
		}
	case acked:
		r.counts.succeeded.Add(1)
	default:
		if r.settleFailed(ctx, t, o) {
			return
		}
	}
	r.forget(t)
}

// settleFailed carries out the outcome of a message whose handler did not succeed. It reports whether the message waits
// for its next try: then the task is not over.
func (r *run) settleFailed(ctx context.Context, t *task, o *outcome) (waits bool) {
	if o.verb == dead {
		o.verb = r.deadLetter(ctx, t, *o)
	}
	r.counts.add(o)
	switch o.verb {
	case nack, again, snooze:
		return r.tryAgain(ctx, t, *o)
	case leave:
		r.leave(*t, "the handler failed after the drain timeout", o.err)
	default: // dead, done
	}
	return false
}

// forget ends a task and frees its lane. When the Run ends, it does not free the lane: the message may be left to the
// broker, and later messages of its key must not overtake it.
func (r *run) forget(t *task) {
	if t.lane != nil && !r.ending() {
		r.lanes.freeRoom(*t)
		r.lanes.free(t.lane)
	}
}

// ending reports whether unsettled messages are left to the broker from now on.
func (r *run) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost != nil || r.working.Err() != nil || r.isClosed()
}

// ack acknowledges a message. If that fails, ack tries it again for ackRetryTime, or until the drain ends. since is
// when acknowledging the message together with its batch failed, or zero: the messages of a batch share the time for
// retries.
func (r *run) ack(t *task, since time.Time) bool {
	for n := uint32(0); ; n++ {
		err := r.consumer.Ack(t.counted())
		if err == nil {
			return true
		}
		r.unsettled(*t, "acknowledging", err)
		if since.IsZero() {
			since = time.Now()
		}
		_ = r.consumer.InProgress(t.msg) // otherwise the message would come again; the next try returns this error, too
		if time.Since(since) >= ackRetryTime || r.isClosed() || sleep(r.working, ackPause.Next(n)) != nil {
			r.leave(*t, "it was handled, but could not be acknowledged", err)
			return false
		}
	}
}

// tryAgain nacks a message. If the message has a lane, it is kept until its next try instead, and tryAgain reports
// true: the task is not over.
func (r *run) tryAgain(ctx context.Context, t *task, o outcome) (waits bool) {
	switch {
	case o.verb == snooze:
		r.counts.snoozed.Add(1)
	case o.verb == nack && r.policy != nil:
		if policy := r.policy(t.counted(), o.err); policy != nil {
			o.verb, o.delay = again, max(0, policy.Next(t.count()))
		}
	}
	switch {
	case t.lane == nil:
		r.nack(*t, o)
		return false
	case r.diesOfTTL(ctx, t, o):
		return false
	}
	r.logAttempt(*t, o)
	r.lanes.keep(*t, o)
	return true
}

func (r *run) nack(t task, o outcome) {
	var err error
	switch {
	case o.err == errHangs: //nolint:errorlint // as nackOfStuck made it
		// NackID does not use the retry topic. A retry from that topic would be a new message, and a second handler
		// would get it while the first one hangs.
		r.consumer.NackID(t.msg.ID())
	case o.verb == snooze:
		err = r.consumer.Snooze(t.msg, o.delay)
	case o.verb == again:
		err = r.consumer.NackWithDelayAndReason(t.msg, o.delay, o.err)
	default:
		err = r.consumer.NackWithReason(t.msg, o.err)
	}
	if err != nil {
		r.unsettled(t, "nacking", err)
	}
}

// logAttempt notes in the log of attempts that a message failed and is tried again here. It notes no delay, so that the
// next Worker that receives the message handles it at once: otherwise later messages of its key would overtake it.
func (r *run) logAttempt(t task, o outcome) {
	if log := r.consumer.AttemptLog(); log != nil {
		count := t.count()
		if o.verb != snooze {
			count++
		}
		log.Failed(attempts.KeyOf(t.msg), count, 0, publishing.TypeName(o.err))
	}
}

// leave leaves a message to the broker.
func (r *run) leave(t task, why string, err error) {
	r.counts.left.Add(1)
	r.keepLeft(t.msg)
	r.logLeft(t, why, err)
}

// keepLeft notes that a message is left to the broker. Its ack timeout is renewed until Run returns: a timeout would
// count as an attempt and, after the last delivery, make a dead letter.
func (r *run) keepLeft(msg pulsar.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftBatches[batchOf(msg)] = true
	if r.consumer.Options().AckTimeout > 0 {
		r.left = append(r.left, msg)
	}
}

// settleAll settles the messages of a batch. It begins to publish the dead letters in their order, but does not wait
// for the broker's answer to one before it begins the next: that could take minutes. After patience it no longer keeps
// the order.
func (r *run) settleAll(tasks []task, outcomes []outcome) {
	r.ackTogether(tasks, outcomes)
	inOrder, cancel := context.WithTimeout(r.lasting, patience)
	defer cancel()
	var letters sync.WaitGroup
	defer letters.Wait()
	free := make(chan struct{}, maxLetters)
	for i, o := range outcomes {
		switch o.verb {
		case hold:
		case dead:
			free <- struct{}{}
			begun, begins := context.WithCancel(inOrder)
			letters.Go(func() {
				defer func() { <-free }()
				defer begins()
				r.settle(publishing.WhenBegun(r.lasting, begins), &tasks[i], &outcomes[i])
			})
			<-begun.Done()
		default:
			r.settle(r.lasting, &tasks[i], &outcomes[i])
		}
	}
}

// ackTogether acknowledges, in one call, the messages of a batch that succeeded. If the call fails for some messages,
// settle acknowledges these one by one later, and they share the time for retries.
func (r *run) ackTogether(tasks []task, outcomes []outcome) {
	var acks []int
	var ids []pulsar.MessageID
	for i, t := range tasks {
		if outcomes[i].verb == ack {
			acks, ids = append(acks, i), append(ids, t.msg.ID())
		}
	}
	if len(ids) == 0 {
		return
	}
	err := r.consumer.AckIDList(ids)
	var failed pulsar.AckError
	some, since := errors.As(err, &failed), time.Now()
	for n, i := range acks {
		if err == nil || some && failed[ids[n]] == nil {
			outcomes[i].verb = acked
		} else {
			outcomes[i].since = since
			_ = r.consumer.InProgress(tasks[i].msg) // the message may wait long until the others are settled
		}
	}
}
