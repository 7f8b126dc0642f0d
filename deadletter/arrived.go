package deadletter

import (
	"context"

	"github.com/apache/pulsar-client-go/pulsar"
)

// maxArrived limits how many letters a call of arrived counts, since counting takes time.
const maxArrived = 10_000

// arrived counts the letters that the filter chooses and that came too late for the run. It does not count letters that
// it cannot read, and returns no error.
func (r *replay) arrived(ctx context.Context, partitions []string) (n int) {
	for i, partition := range partitions {
		if n >= maxArrived {
			break
		}
		end, from := position{-1, -1, 0}, pulsar.EarliestMessageID()
		for _, of := range []map[string]position{r.j.run.Ends, r.j.run.Tops} {
			if p, ok := of[partitionName(i)]; ok {
				end = p
			}
		}
		if end.Entry >= 0 {
			from = pulsar.NewMessageID(end.Ledger, end.Entry, -1, 0)
		}
		tail, err := r.t.tail(ctx, partition, from, queueSize)
		if err != nil {
			return n
		}
		tail.at = end
		_ = tail.drain(ctx, func(msg pulsar.Message) error {
			if l := newLetter(r.t.o.Topic, i, msg); end.before(l.pos) && r.o.Filter.Match(l) {
				n++
			}
			if n >= maxArrived {
				return errEnough
			}
			return nil
		})
		tail.close()
	}
	return n
}
