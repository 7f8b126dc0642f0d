package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// position is the place of a message in its partition. Messages come in the order of their positions.
type position struct {
	Ledger int64 `json:"ledger"`
	Entry  int64 `json:"entry"`
	Index  int32 `json:"index,omitempty"` // in its batch
}

// positionOf returns the position of a message. A chunked message has the position of its last chunk.
func positionOf(id pulsar.MessageID) position {
	return position{id.LedgerID(), id.EntryID(), max(id.BatchIdx(), 0)}
}

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.Ledger, q.Ledger), cmp.Compare(p.Entry, q.Entry), cmp.Compare(p.Index, q.Index))
}

func (p position) before(q position) bool { return p.compare(q) < 0 }

// entry returns the position of the first message in the batch of p.
func (p position) entry() position { return position{p.Ledger, p.Entry, 0} }

// id returns the ID, without an index, of a letter at p.
func (p position) id(partition int) string {
	return fmt.Sprintf("%d:%d:%d", p.Ledger, p.Entry, partition)
}

// acknowledged has the entries of a partition that a subscription has acknowledged, at one moment.
type acknowledged struct {
	exists bool     // the subscription exists
	mark   position // everything up to this entry is acknowledged
	spans  []span   // further acknowledged entries, in order
	size   int64    // average size of an entry; 0 if it is not known
}

// span is the entries after one position and up to another.
type span struct{ after, to position }

func (a *acknowledged) includes(p position) bool {
	p = p.entry()
	if !a.exists || !a.mark.before(p) {
		return a.exists
	}
	i, _ := slices.BinarySearchFunc(a.spans, p, func(s span, p position) int { return s.to.compare(p) })
	return i < len(a.spans) && a.spans[i].after.before(p)
}

// queue returns the size of the receiver queue, from queueSize to maxQueueSize. Within these limits, a full queue of
// average messages has a quarter of windowBytes. For small messages the queue is large, since upstream asks a far
// broker for more only when half of the queue is taken.
func (a *acknowledged) queue() int {
	if a.size == 0 {
		return queueSize
	}
	return int(min(max(windowBytes/4/a.size, queueSize), maxQueueSize))
}

// last returns the last entry up to end that may be unacknowledged.
func (a *acknowledged) last(end position) position {
	for _, s := range slices.Backward(a.spans) {
		if s.after.before(end.entry()) && !s.to.before(end.entry()) && s.after.Entry >= 0 {
			end = position{s.after.Ledger, s.after.Entry, math.MaxInt32} // the whole batch
		}
	}
	if a.exists && !a.mark.before(end.entry()) {
		return position{-1, -1, 0}
	}
	return end
}

var spanText = regexp.MustCompile(`\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]`)

// acknowledged returns the acknowledgements according to the admin API; none without an admin API.
func (t *Topic) acknowledged(ctx context.Context, partition, subscription string) (*acknowledged, error) {
	if t.o.Admin.URL == "" {
		return &acknowledged{}, nil
	}
	var stats struct {
		Cursors                    map[string]struct{ MarkDeletePosition, IndividuallyDeletedMessages string }
		NumberOfEntries, TotalSize int64
	}
	err := t.o.Admin.call(ctx, admin.Topic(partition)+"/internalStats", &stats)
	if admin.NotFound(err) {
		return &acknowledged{}, t.unknown(ctx, partition, subscription, err)
	}
	if err != nil {
		return nil, err
	}
	cursor, ok := stats.Cursors[admin.CursorName(subscription)]
	a := &acknowledged{exists: ok, size: stats.TotalSize / max(stats.NumberOfEntries, 1)}
	number := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64) // spanText matches digits only
		return n
	}
	if m := markText.FindStringSubmatch(cursor.MarkDeletePosition); m != nil {
		a.mark = position{number(m[1]), number(m[2]), 0}
	}
	for _, m := range spanText.FindAllStringSubmatch(cursor.IndividuallyDeletedMessages, -1) {
		a.spans = append(a.spans, span{position{number(m[1]), number(m[2]), 0},
			position{number(m[3]), number(m[4]), 0}})
	}
	return a, nil
}

// unknown returns an error with the cause if the subscription exists, since its acknowledgements are then unknown.
// Otherwise nothing is acknowledged, and unknown returns nil.
func (t *Topic) unknown(ctx context.Context, partition, subscription string, cause error) error {
	names, err := t.subscriptions(ctx, partition)
	switch {
	case errors.Is(err, ErrNoTopic):
		return nil
	case err != nil:
		return err
	case slices.Contains(names, subscription):
		return fmt.Errorf("deadletter: the acknowledgements of subscription %s of %s are not known: the admin API "+
			"at %s has no internalStats: %w",
			subscription, partition, t.o.Admin.URL, cause)
	}
	return nil
}

var markText = regexp.MustCompile(`^(-?\d+):(-?\d+)$`)
