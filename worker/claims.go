package worker

import (
	"errors"
	"fmt"
	"sync"

	"github.com/pulsar-redelivery/redelivery"
)

// claims maps each Consumer to the running Worker that receives from it. Two Workers of one Consumer would take each
// other's messages, and give them back.
var claims sync.Map // *redelivery.Consumer → *Worker

var errRanBefore = errors.New("worker: Run was called before, want a new Worker")

// claim reserves the Consumer for this Worker until release is called. It returns an error if another Worker runs with
// the Consumer.
func (w *Worker) claim() (release func(), err error) {
	switch other, taken := claims.LoadOrStore(w.consumer, w); {
	case taken && other == w:
		return nil, errRanBefore
	case taken:
		return nil, fmt.Errorf("%w: worker: another Worker runs with the Consumer %s of subscription %s, want one "+
			"Worker for each Consumer",
			redelivery.ErrInvalidOption, w.consumer.Name(), w.consumer.Subscription())
	}
	return func() { claims.Delete(w.consumer) }, nil
}
