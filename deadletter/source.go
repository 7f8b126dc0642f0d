package deadletter

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

const (
	// receiver queue for messages of unknown size; the broker first sends as many entries, which may be batches
	queueSize    = 50
	maxQueueSize = 300 // receiver queue for small messages
	// after this time upstream acknowledges the chunks of an incomplete message; it is longer than all waits here
	chunkPatience = 10 * time.Minute
	lockPatience  = 5 * time.Second // a consumer that blocks the subscription for longer has not crashed
	ackPatience   = time.Minute     // for a confirmation or an acknowledgement, also while the broker is away
)

// source reads the letters of a partition that the subscription has not acknowledged, each once, in order.
type source struct {
	t         *Topic
	partition string
	index     int             // number of the partition
	queue     int             // size of the receiver queue
	last, end position        // of the letter that next returned last, and of the last letter to return
	consumer  pulsar.Consumer // the only one of the subscription, or nil
	heard     time.Time       // when the consumer last returned a message
	silences  int             // how many consumers in a row returned nothing new
}

// end returns the end of a partition.
func (t *Topic) end(ctx context.Context, partition string) (position, error) {
	tail, err := t.tail(ctx, partition, pulsar.LatestMessageID(), queueSize)
	if err != nil {
		return position{}, err
	}
	defer tail.close()
	end, err := tail.last(ctx)
	if end.Entry >= 0 { // not empty
		end.Index = math.MaxInt32 // the whole batch
	}
	return end, err
}

// shorten returns the position of the last letter up to end that is unacknowledged according to the admin API, and the
// size of the receiver queue. Without an admin API the source also waits for the last letters if they are already
// acknowledged.
func (t *Topic) shorten(ctx context.Context, partition string, end position) (position, int, error) {
	done, err := t.acknowledged(ctx, partition, t.o.Subscription)
	if err != nil {
		return end, queueSize, err
	}
	return done.last(end), done.queue(), nil
}

func (t *Topic) source(index int, partition string, end position, queue int) *source {
	return &source{t: t, partition: partition, index: index, queue: queue, end: end, last: position{-1, -1, 0}}
}

// subscribe returns a consumer of a partition or of the whole topic. It is the subscription's only consumer there.
func (t *Topic) subscribe(ctx context.Context, topic string, queue int) (pulsar.Consumer, error) {
	decryption := *t.o.Decryption // upstream modifies it
	consumer, err := insist(ctx, lockPatience, func() (pulsar.Consumer, error) {
		return t.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: t.o.Subscription,
			Type:                        pulsar.Exclusive,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: true,
			Decryption:        &decryption,
			ReceiverQueueSize: queue, ExpireTimeOfIncompleteChunk: chunkPatience})
	}, pulsar.Consumer.Close)
	if err != nil {
		if isBusy(err) {
			return nil, fmt.Errorf("%w: subscription %s of %s has a consumer", ErrBusy, t.o.Subscription, topic)
		}
		return nil, fmt.Errorf("deadletter: subscribing to %s: %w", topic, err)
	}
	return consumer, nil
}

// unsubscribe removes the subscription, so that it no longer keeps letters.
func (t *Topic) unsubscribe(ctx context.Context) error {
	consumer, err := t.subscribe(ctx, t.o.Topic, 1)
	if err != nil {
		return err
	}
	defer consumer.Close()
	unsubscribe := func() (struct{}, error) { return struct{}{}, consumer.Unsubscribe() }
	if _, err := upstream.Within(ctx, unsubscribe, nil); err != nil {
		return fmt.Errorf("deadletter: removing subscription %s of %s: %w", t.o.Subscription, t.o.Topic, err)
	}
	return nil
}

func (s *source) open(ctx context.Context) (err error) {
	s.consumer, err = s.t.subscribe(ctx, s.partition, s.queue)
	s.heard = time.Now()
	return err
}

func (s *source) close() {
	if s.consumer != nil {
		s.consumer.Close()
		s.consumer = nil
	}
}

// next returns the next letter, nil if none comes within wait, and io.EOF after the last one. It skips letters that the
// broker sends again.
func (s *source) next(ctx context.Context, wait time.Duration) (*Letter, error) {
	if !s.last.before(s.end) {
		return nil, io.EOF
	}
	if s.consumer == nil {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case msg := <-s.consumer.Chan():
			s.heard = time.Now()
			p := positionOf(msg.ID())
			if !s.last.before(p) {
				continue
			}
			if s.end.before(p) {
				s.last = s.end
				return nil, io.EOF
			}
			l := newLetter(s.t.o.Topic, s.index, msg.Message)
			s.last, s.silences = p, 0
			if int(p.Index) >= l.batch-1 {
				s.last.Index = math.MaxInt32 // the whole batch
			}
			return l, nil
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// maxSilences is how many consumers in a row may return nothing although letters are missing according to the admin
// API. After the next one, the source gives up on these letters.
const maxSilences = 5

// silent is called when no letter came and none is under way. It does nothing until some time without a letter has
// passed. This time grows with each consumer in a row, since a large letter takes time. Then there are two cases.
// Either the source is at its end, because the last letters are already acknowledged or are chunks of an incomplete
// message. Or the broker has stalled; then silent closes the consumer, since a new one ends the stall. If the source
// gives up on letters, silent returns the position of the last of them. If the topic was deleted, silent returns an
// error.
func (s *source) silent(ctx context.Context) (missing position, err error) {
	if s.consumer == nil || time.Since(s.heard) < time.Duration(s.silences+1)*s.t.quiet {
		return missing, nil
	}
	end, _, err := s.t.shorten(ctx, s.partition, s.end)
	if err != nil {
		return missing, err
	}
	if !s.last.before(end) {
		now, err := s.t.end(ctx, s.partition)
		if err == nil && now.before(s.end.entry()) {
			err = errVanished
		}
		if err != nil {
			return missing, err
		}
	}
	s.silences++
	if !s.last.before(end) || s.silences > maxSilences {
		if s.last.before(end) && s.t.o.Admin.URL != "" {
			missing = end
		}
		s.last = s.end
		return missing, nil
	}
	s.close()
	return missing, nil
}
