package redelivery

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/insight"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

func init() {
	insight.Of = func(consumer any) insight.Consumer { return inside{consumer.(*Consumer)} }
}

// inside is what package worker asks a Consumer.
type inside struct{ *Consumer }

func (c inside) OmitsCause() bool { return c.settings.omitsCause() }

// IsSettled finds a nack only without an ack timeout and without a lost connection, which make a message wait too.
func (c inside) IsSettled(msg pulsar.Message) bool {
	n, err := c.nameOf(msg)
	if err != nil || c.life.ended.Err() != nil || !isTracked(msg) {
		return false
	}
	if c.ledger.IsSettled(ledger.Name{ID: n.ID, Topic: n.Topic}) {
		return true
	}
	_, current, known := c.ledger.Find(n)
	return known && !current && c.settings.ackTimeout == nil && !c.losses.any.Load()
}

func (c inside) OutlivesTTL(msg pulsar.Message, delay time.Duration) bool {
	return c.settings.outlivesTTL(msg, delay)
}

// omitsCause reports whether the texts of the application's errors are kept out of dead letters and the log.
func (s *settings) omitsCause() bool { return s.deadLetters != nil && s.deadLetters.OmitCause }
